"""Sweeps: the members of an entry with a matrix, and their names."""
