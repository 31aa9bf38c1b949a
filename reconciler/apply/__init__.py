"""Carrying a plan out, step by step, and the one loop that waits.

A file imports only files that stand before it::

    waiter       the loop that waits
    catalog      what the target offers: for pre-flight, and before a replace ends anything
    journaled    the calls of one action: its turn, and the lines of the journal around each
    steps        what is done for one action
    executor     all actions of a plan
"""
