"""What a change of the manifests means, without the service: two declarations of a stack side by side."""
