"""The fields of a job, as the service documents them.

A file imports only files that stand before it::

    field_types  What the models are made of: their base, the marks and types of their fields
    job          What a person may declare below a job: one line a field
    rare         The models of fields that few manifests have, imported when a manifest has one
"""
