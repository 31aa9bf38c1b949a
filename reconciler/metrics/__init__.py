"""Metrics on the network: served to whoever scrapes them, or pushed to a gateway."""
