"""Variables and expressions: the sources of values, their types, and what they are put into."""
