"""The command line: options in, text and an exit code out.

Commands, and what they use, are imported on demand, so that `--help` is fast. A module imports only modules
listed before it::

    console progress exits live output options context
    job_actions execution doctor               what commands do
    fleet watch run
    plan apply jobs code drift project         the commands, by topic
    main                                       their table, and running one
"""
