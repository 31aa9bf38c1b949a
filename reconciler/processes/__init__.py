"""Targets whose jobs are processes of this machine.

The jobs are kept, searched and changed by the emulated service, whose clock moves none of them here: each job
that runs has a supervisor, a process of its own, which runs what the job declares and says how it ends. There
is no daemon: who creates a job, and a supervisor that ends, starts the next one that waits for a slot.

A file imports only files that stand before it::

    tree          the processes of a job: found, sampled and ended
    execution     what a job declares, as directories, variables and commands; `run` needs no more
    table         slots, supervisors and results, beside the jobs of the emulator
    supervisor    runs one job, from its copy of the code to its exit code
    target        the kind of target, and what a manifest says of this machine
"""
