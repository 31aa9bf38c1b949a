"""Sending notifications, by Apprise."""
