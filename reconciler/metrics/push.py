"""Pushing metrics to a Pushgateway: what is not there to be scraped leaves them with it.

Source: https://github.com/prometheus/pushgateway, "API".
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import push_to_gateway

from reconciler.decide.metrics import Measurement, MetricSource
from reconciler.metrics.exposition import registry_of

JOB = "reconciler"
#: Longer than that nobody waits for a gateway, in seconds.
TIMEOUT_S = 10.0


class PushFailed(Exception):
    """The gateway did not take the metrics; the text holds no secret."""


def push(url: str, metrics: Iterable[Measurement], where: MetricSource) -> None:
    """Replace what the gateway has of this stack on this target.

    Raises:
        PushFailed: it did not take them.
    """
    try:
        push_to_gateway(url, JOB, registry_of(metrics), grouping_key=where.labels, timeout=TIMEOUT_S)
    except Exception as error:
        # The texts of the library may quote the URL, which may hold a password.
        status = getattr(error, "code", None)
        reason = getattr(error, "reason", error)
        why = (reason.strerror if isinstance(reason, OSError) else None) or type(reason).__name__
        raise PushFailed(f"the gateway answered HTTP {status}" if status else why) from None
