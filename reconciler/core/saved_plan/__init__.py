"""Saved plans: three parts, for each answers a question of its own.

`document` knows what a plan file says and by which seal it is whole, `parser` which bytes say it, and
`preconditions` whether it still holds. The file is in `reconciler.saved_plans`, and no other place reads or
writes it.
"""
