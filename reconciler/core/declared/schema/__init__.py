"""The manifest language as a JSON Schema, and its keys one by one."""
