"""The ModelArts API: its operations, its models, and the backend made of them."""
