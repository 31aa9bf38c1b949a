"""The edge that reads manifests: files in, desired jobs out, every problem with file, line and column.

A file imports only files that stand before it::

    yaml positions problems               one file; the places in it; what is wrong, in words
    files git                             the files of a stack, on disk or in a commit
    merge expressions variables           many files as one; ${…}, and what variables stand for
    matrix outputs                        the members of a sweep; paths that jobs take from others
    targets settings                      targets; records, notifications, policies, ignored drift
    variable_section saved_secrets        declared variables; values of a saved plan
    jobs load                             an entry as a desired job; a stack
    write format                          data as YAML, entries put into a file; `fmt`
    export scaffold policy_cases          `export`, `init`, `policies test`
"""

from reconciler.manifest.load import LoadedStack, load, load_files, load_mapping

__all__ = ["LoadedStack", "load", "load_files", "load_mapping"]
