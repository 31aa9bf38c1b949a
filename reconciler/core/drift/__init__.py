"""Drift: its classes, the rules that find it, and the report."""
