"""What is to be done: the rules, and the reports that are functions of their answers. No I/O.

A file imports only files that stand before it::

    plan key_state actions rules                           what may be done, what is known, what decides
    outcome goal supersession marker_flags                 what became of an action; what is waited for
    said_in_words dependencies cost sweep_members reruns   what a plan costs and runs again
    policy_subject policy_verdict policy_cases             policies
    blocking guards preflight blockers objections          what holds a key back
    renames planner adoption                               all keys together
    drift_entry drift_check drift_remedies drift_fields drift_comparison drift_rules drift_report
    journal preconditions saved_plan_parser saved_plan     what is written down, and saved
    status_report explanation history_report validation_report doctor
    timeline                                               the page of a history
    review_renames review                                  HEAD planned against BASE
    fleet exit_code                                        what stacks come to, and how a run ends
    watch_window metrics                                   when a watch may apply, and what is measured
"""
