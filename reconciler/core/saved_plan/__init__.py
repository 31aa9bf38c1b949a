"""Saved plans: the document, its checks, and its seal."""
