"""Metrics as prometheus-client has them: in a registry of their own, never in the one of the process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from reconciler.decide.metrics import COUNTER, Measurement

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Collector(Collector):
    """Yields what was measured."""

    def __init__(self, metrics: Iterable[Measurement]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterator[Family]:
        """One family for each metric."""
        for metric in self._metrics:
            labels = list(metric.samples[0][0]) if metric.samples else []
            kind = CounterMetricFamily if metric.type == COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.meaning, labels=labels)
            for said, value in metric.samples:
                family.add_metric([said[name] for name in labels], value)
            yield family


def registry_of(metrics: Iterable[Measurement]) -> CollectorRegistry:
    """A registry that holds these metrics and nothing else."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metrics))
    return registry


def exposed(metrics: Iterable[Measurement]) -> bytes:
    """The text that a scrape is answered with."""
    return bytes(generate_latest(registry_of(metrics)))
