"""Targets whose jobs are processes on this machine.

The emulator stores, searches and changes the jobs, but its clock does not move them. Each running job has a
supervisor, a process of its own that runs the job and records its end. There is no daemon: creating a job,
and the end of a supervisor, start the next job that waits for a slot.

A module imports only modules listed before it::

    tree          the processes of a job: finding, sampling and ending them
    execution     the directories, variables and commands of a job; all that `run` needs
    table         slots, supervisors and results, in addition to the emulator's jobs
    supervisor    runs one job, from copying its code to its exit code
    target        the kind of target, and its settings
"""
