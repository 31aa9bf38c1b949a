"""The service's operations, one group a module: jobs, search, tags, logs, the catalog."""
