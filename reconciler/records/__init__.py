"""What was done and seen: journal, lock with lease, and history, in one store (SQLite or PostgreSQL).

The files, each importing only files before it::

    file          whether the SQLite file is there; the proof that a process is dead
    schema        tables, what their cells hold, and migrations
    dialects      statements, and what each database does in its own way
    database      connections, transactions, failures, scopes, and what an unchanged plan reads
    lock          leases, and the locks of scopes
    history       revisions, declarations and runs
    journal       what is written while a run goes on
    store         all of it, opened; drift checks
    recording     the records of one stack, opened when first needed
"""
