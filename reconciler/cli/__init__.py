"""What people type: options in, text and an exit code out.

A command is imported when it is called, and what it does when it does it, so that `--help` is quick. A file
imports only files that stand before it::

    console progress exits live output options context
    job_actions execution doctor               what commands do
    fleet watch run
    plan apply jobs code drift project         the commands, by topic
    main                                       their table, and running one
"""
