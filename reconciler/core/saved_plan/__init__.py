"""Saved plans: four parts, for each answers a question of its own, and no two modules could hold them all.

`document` knows what a plan file says, `parser` which bytes say it, `preconditions` whether it still holds,
and `checks` with `bodies` whether it contradicts itself. The file is in `reconciler.saved_plans`, and no
other place reads or writes it.
"""
