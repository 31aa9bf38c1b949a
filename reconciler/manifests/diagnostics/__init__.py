"""Problems of manifests in words: what, where, why, and the name that was meant."""
