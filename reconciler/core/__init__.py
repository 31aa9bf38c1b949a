"""Facts: what a job, a stack and a record are. Nothing here opens a file, calls the network or reads a clock.

A file imports only files that stand before it::

    addresses          The addresses of services and of record stores
    identity           Whose job it is: stack, key, revision, remote name
    phase              The phases of a training job, and what may be done in each, as data
    policy_expression  What is asked of the expressions of policies, and what they answer
    scalar             Expressions in texts: where `${…}` stands in a manifest or in saved data
    values             The small values that every room needs: a change, a warning, a source, a target
    fields             The fields of a job, as the service documents them
    observed           A job as the service shows it: its details, a page of the list, its log and its events
    canonical          The canonical form of a job: two jobs that mean the same have the same one
    code               The code of a job: its files, its digest, and how a canonical form says it
    lifecycle          The lifecycle of a job as its manifest declares it: when it is replaced, retried
    body               The create body of a job: made of what is declared, summed up, and its digest
    catalog            What a target offers to jobs, and what of a create body it does not
    ports              What an edge is handed: the protocols of a service, its clock, its catalog and its logs
    diff               Which fields differ between two canonical forms
    stack              A stack: what its manifest files say once they are merged, its jobs
    masking            Secrets in jobs: masked in changes and in the answers of the service
    mutable            What can be changed on a job that exists, for which cloud and in which phase
    past               What was done, by whom, and what each revision was, as it is recorded
    record             The records of a stack on a target: their scope, and what is remembered
    settings           The sections of a manifest: its variables, and what it says of drift
    entry              An entry that is written for a job that exists, and what of it is written where
    ownership          Which observed job belongs to which key of which stack
    schema             The published JSON Schema of a manifest, and what an edit of each field of a job means
"""
