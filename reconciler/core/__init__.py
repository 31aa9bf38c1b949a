"""Facts: what a job, a stack and a record are. Nothing here opens a file, calls the network or reads a clock.

A file imports only files that stand before it::

    time_zone endpoint_url scalar expression aliases       texts of a manifest
    secret_variables                                       variables for the secrets of an entry
    target_kind values phase identity observed_job         small values; a job as the service shows it
    listing job_reports logtail catalog policy_expression
    ports store_url                                        the protocols of a backend; addresses of stores
    fields schedule lifecycle drift_rule policy            what may be declared
    notification_url notify_entry canonical body body_summary digest reconstruction
    stack record ownership selection                       a stack; its history; whose a job is
    diff mutable masking                                   two declarations beside each other
    schema_annotations manifest_schema manifest_keys       the published schema
    common_part raw_fields manifest_entry entry_patch      an entry that is written for a job
"""
