"""Deciding: the rules, the guards, and the plan that they make."""
