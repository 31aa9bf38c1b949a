"""The backend of a ModelArts target: a workspace, and groups of further calls that a plan does not need."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.modelarts.workspace import Workspace

if TYPE_CHECKING:
    from reconciler.modelarts.job_models import Jobs
    from reconciler.modelarts.operations import Catalog, Logs, Tags


class ModelArtsBackend(Workspace):
    """One workspace of one project; its groups of further calls are imported on first use."""

    @cached_property
    def jobs(self) -> Jobs:
        """The calls about jobs, with typed questions and answers."""
        from reconciler.modelarts.job_models import Jobs

        return Jobs(self)

    @cached_property
    def logs(self) -> Logs:
        """What jobs report: logs, events, metrics, tasks, stages."""
        from reconciler.modelarts.operations import Logs

        return Logs(self)

    @cached_property
    def tags(self) -> Tags:
        """The tags of jobs."""
        from reconciler.modelarts.operations import Tags

        return Tags(self)

    @cached_property
    def catalog(self) -> Catalog:
        """What the project offers: flavors, engines, pools, quotas."""
        from reconciler.modelarts.operations import Catalog

        return Catalog(self)
