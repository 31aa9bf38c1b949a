"""The edge that reads manifests: files in, desired jobs out, every problem with file, line and column.

Each module imports only modules listed before it::

    yaml problems                      one file; its problems, with their locations
    files git                          the files of a stack, on disk or in a commit
    merge expressions variables        the files merged; ${…}, and the values of variables
    matrix settings sections           sweeps; targets, records; notifications, policies, drift
    saved_secrets                      the secrets of a saved plan
    jobs load                          an entry as a desired job, with the outputs of others; a stack
    format                             data as YAML; `fmt`
    export                             `export` and `init`
"""

from reconciler.manifest.load import LoadedStack, load

__all__ = ["LoadedStack", "load"]
