"""What is to be done: the rules, and the reports that are functions of their answers. No I/O.

A file imports only files that stand before it::

    plan key_state actions rules                 what may be done, what is known of a key, what decides
    outcome                                      what became of an action, and of the wait for its job
    cost policies                                what jobs cost, and what policies say of them
    renames guards preflight                     keys that come and go, and what holds one back
    planner adoption                             all keys together
    drift_check drift                            what changed behind the manifest's back
    saved_plan                                   what is saved of a plan
    reports validation history doctor            what is said of it
    review                                       HEAD planned against BASE
    fleet                                        what stacks come to
    code                                         what lies in a code store, and may be deleted
    watch_window                                 when a watch may apply
"""
