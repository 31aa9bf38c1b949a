"""The declared job: its model, its canonical form, its digest, and what an edit of it means."""
