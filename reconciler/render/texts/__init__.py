"""What is shown of one content each, as text for people. The format `text` puts these together."""
