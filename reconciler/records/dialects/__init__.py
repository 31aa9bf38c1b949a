"""What each database does in its own way: one module per row of `core.store_url.STORES`, of the same name."""
