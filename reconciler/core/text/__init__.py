"""Texts that people read: durations, and what must not be seen in them."""
