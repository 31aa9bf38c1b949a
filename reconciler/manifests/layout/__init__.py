"""What `fmt` needs of a manifest: its values, its comments, and their layout."""
