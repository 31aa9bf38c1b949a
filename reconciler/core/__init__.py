"""Facts: what a job, a stack and a record are. Nothing here opens a file, calls the network or reads a clock.

Each module imports only modules above it::

    addresses          URLs of services and of record stores
    identity           Whose job it is: stack, key, revision, remote name
    phase              The phases of a training job, and what may be done in each, as data
    policy_expression  Policy expressions: the questions to evaluate and their answers
    scalar             Texts with expressions, numbers that keep their spelling, and how both are saved
    values             Small values for every layer: a change, a warning, a source, a target
    fields             The fields of a job, as the service documents them
    observed           A job as the service reports it: details, a page of the list, log and events
    canonical          The canonical form of a job, which is equal for jobs that mean the same
    code               The code of a job: its files, its digest, and its place in a canonical form
    lifecycle          The lifecycle of a job as declared: when it is replaced, retried or rerun
    body               The create body of a job: how it is built, summarized and hashed
    catalog            What a target offers to jobs, and what a create body names that is missing there
    ports              The protocols of what the core is given: service, clock, catalog, logs
    diff               Which fields differ between two canonical forms
    stack              A stack with its jobs, after its manifest files are merged
    masking            Secrets in jobs: masked in changes and in the service's responses
    mutable            What can be changed on an existing job, on which cloud and in which phase
    past               Recorded runs, and what each revision was
    record             The records of a stack on a target: their scope and contents
    settings           The sections of a manifest: its variables, and its settings for drift
    entry              Write a manifest entry for an existing job
    ownership          Which observed job belongs to which key of which stack
    schema             The published JSON Schema of a manifest, and what an edit of each field of a job means
"""
