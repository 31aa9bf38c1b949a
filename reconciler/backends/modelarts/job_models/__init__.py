"""The job as the service reports it: every documented field, typed.

An `ObservedJob` is what decisions need of a job; this is all of it, read when somebody asks.
"""

from reconciler.backends.modelarts.job_models.job import JobPage, ReportedJob

__all__ = ["JobPage", "ReportedJob"]
