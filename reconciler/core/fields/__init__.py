"""The fields of a job, as the service documents them.

Each module imports only modules above it::

    field_types  The building blocks of the models: their base, and the marks and types of fields
    job          The fields that a manifest may declare for a job, one per line
    rare         The models of rarely used fields, imported when a manifest has one
"""
