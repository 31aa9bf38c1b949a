"""Many stacks at once: which there are, each checked on its own, here or on the workers of a cluster."""
