"""Where a manifest is read from: files, a git revision, or data."""
