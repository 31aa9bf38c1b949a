"""Executes plans.

A module imports only modules listed before it::

    waiter       the polling loop
    catalog      what the target offers: for pre-flight, and before a replace terminates a job
    journaled    the calls of one action: scheduling, and the journal around each call
    steps        the steps of one action
    executor     all actions of a plan
"""
