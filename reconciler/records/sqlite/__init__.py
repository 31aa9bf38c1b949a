"""A store that is a file: found, checked, and read without SQLAlchemy."""
