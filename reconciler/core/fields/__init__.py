"""The fields of a job, as the service documents them."""
