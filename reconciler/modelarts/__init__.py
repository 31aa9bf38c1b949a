"""The ModelArts client: targets, requests and responses, and the jobs of a workspace.

A module imports only modules listed before it::

    clock known_secrets                time and retries; secrets in the environment
    errors http login auth             response bodies and errors, transport, credentials
    observe workspace                  reading jobs page by page; a workspace as a backend
    operations                         further calls, by group, and typed responses
    target                             what opens a target of any kind, and an open target
    objects                            the object store of a cloud, for code
    connect local                      the targets of kind modelarts and local
    jobs                               single jobs, on a target of any kind
"""
