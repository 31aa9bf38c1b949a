"""The record store: journal, lock with lease, and history, in SQLite or PostgreSQL.

The modules, each importing only modules listed before it::

    file          the SQLite file; process locks, which prove that a process is dead
    schema        tables, cell types and migrations
    dialects      statements, and the differences between the databases
    database      connections, transactions, errors, scopes, and what an unchanged plan reads
    lock          the locks of scopes, with leases
    history       revisions, declarations and runs
    journal       the entries of a run in progress
    store         the whole store, opened; drift checks
    recording     the records of one stack, opened on first use
"""
