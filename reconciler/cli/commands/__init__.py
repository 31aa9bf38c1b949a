"""One file per command: read options, call the API, pick a renderer, exit."""
