"""Who holds a stack: the lock with its lease, and whether its holder still lives."""
