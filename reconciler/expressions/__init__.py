"""Expressions in CEL, evaluated in a process of their own with limits of time and memory."""
