"""The edge that reads manifests: files in, desired jobs out, every problem with file, line and column.

A file imports only files that stand before it::

    yaml problems                      one file; what is wrong with it, in words and at its place
    files git                          the files of a stack, on disk or in a commit
    merge expressions variables        many files as one; ${…}, and what variables stand for
    matrix settings sections           a sweep; targets, records; notifications, policies, drift
    saved_secrets                      values of a saved plan
    jobs load                          an entry as a desired job, with the outputs of others; a stack
    format                             data as YAML, entries put into a file; `fmt`
    export                             `export` and `init`
"""

from reconciler.manifest.load import LoadedStack, load, load_mapping

__all__ = ["LoadedStack", "load", "load_mapping"]
