"""What the emulator keeps: jobs in a database, its clock, and access keys that are locked."""
