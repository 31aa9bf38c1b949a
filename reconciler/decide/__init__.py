"""What to do: the rules, and the reports that derive from their decisions. No I/O.

A file imports only files listed before it::

    plan key_state actions rules                 possible actions, the state of a key, the decision table
    outcome                                      the outcome of an action, and of the wait for its job
    cost policies                                the cost of jobs, and the verdicts of policies
    renames guards preflight                     keys that come and go, and what holds one back
    planner adoption                             all keys together
    drift_check drift                            what changed behind the manifest's back
    saved_plan                                   the options of a saved plan
    reports validation history doctor            status, explanations, and other reports
    review                                       HEAD planned against BASE
    fleet                                        the results of many stacks
    code                                         uploads in a code store, and which may be deleted
    watch_window                                 when a watch may apply
"""
