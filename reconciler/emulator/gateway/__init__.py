"""What a request passes before it reaches an operation: the check of its credentials."""
