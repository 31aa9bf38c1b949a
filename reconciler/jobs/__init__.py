"""Single jobs on one target: which one is meant, what may be done with it, how it is waited for."""
