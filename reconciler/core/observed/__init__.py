"""The observed job: its phase, who owns it, and what the target offers."""
