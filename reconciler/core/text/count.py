"""A number of things, for people: 1 job, 2 jobs."""

from __future__ import annotations


def format_count(number: int, noun: str) -> str:
    """Say how many there are of what a noun names; its plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
