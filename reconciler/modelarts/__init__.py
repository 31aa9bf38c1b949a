"""The edge to ModelArts: targets, requests, what the service answers, and the jobs of a workspace."""
