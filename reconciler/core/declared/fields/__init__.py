"""The fields of the create body, as a manifest declares them."""
