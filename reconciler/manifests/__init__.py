"""The edge that reads manifests: files in, desired jobs out, every problem with file, line and column."""

from reconciler.manifests.load import LoadedStack, load, load_mapping

__all__ = ["LoadedStack", "load", "load_mapping"]
