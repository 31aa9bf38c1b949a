"""Checks on a schedule: when the next one is due, when changes may be applied, and what a check reports."""
