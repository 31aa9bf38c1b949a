"""The report of a fleet: a module per format, which puts together what that format says of each stack."""
