"""A manifest entry made of a job that exists."""
