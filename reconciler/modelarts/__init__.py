"""The edge to ModelArts: targets, requests, what the service answers, and the jobs of a workspace.

A file imports only files that stand before it::

    clock known_secrets                time and retries; what is known to be secret
    errors http login auth             requests: bodies and refusals, transport, credentials
    observe workspace                  jobs read page by page; one workspace as a backend
    operations                         the further calls in groups, and typed answers
    target                             any target: what it is opened with, what it is once it is open
    objects                            the object store of a cloud, for code
    connect local                      the two kinds of target
    jobs                               single jobs, on a target of any kind
"""
