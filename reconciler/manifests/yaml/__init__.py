"""One YAML file: its bytes, its node tree, and the places of its values."""
