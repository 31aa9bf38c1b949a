"""How requests travel: sessions, retries, deadlines, bounds, and the transport inside the process."""
