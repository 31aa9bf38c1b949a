"""The edge that reads manifests: files in, desired jobs out, every problem with file, line and column."""

from reconciler.manifest.load import load, load_files, load_mapping
from reconciler.manifest.loaded_stack import LoadedStack

__all__ = ["LoadedStack", "load", "load_files", "load_mapping"]
