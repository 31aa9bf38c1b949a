"""Comparing two manifests: their files, and what reads and compares them."""
