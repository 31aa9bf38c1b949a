"""What is checked of a stack, as a value: its manifest, its policies, its drift; on a schedule all of it."""
