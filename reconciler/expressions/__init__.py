"""CEL expressions, evaluated in a separate process with limits on time and memory."""
