"""The registry of metrics: names are unique, labels and units are there, what it lacks is named by its words."""

from __future__ import annotations

import pytest

from profiler.core import metrics, units


def test_names_and_labels_are_unique() -> None:
    assert len({metric.name for metric in metrics.METRICS}) == len({metric.label for metric in metrics.METRICS})
    assert len({metric.name for metric in metrics.METRICS}) == len(metrics.METRICS)


@pytest.mark.parametrize("metric", metrics.METRICS, ids=lambda metric: metric.name)
def test_every_unit_can_be_printed(metric: metrics.Metric) -> None:
    assert units.value(1.5, metric.unit)
    assert metric.label[0].isupper()


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("syncs_per_step", "Syncs per step"),
        ("tokens_per_s", "Throughput"),
        ("cache_misses_per_step", "Cache misses per step"),
        ("gradient_ns_per_step", "Gradient time per step"),
    ],
)
def test_labels(name: str, label: str) -> None:
    assert metrics.label(name) == label


def test_order_is_that_of_the_registry_then_by_name() -> None:
    assert metrics.in_order(["zebra", "loss", "apple", "tokens_per_s"]) == ("tokens_per_s", "loss", "apple", "zebra")


def test_counters() -> None:
    syncs, copied = metrics.find_counter("syncs"), metrics.find_counter("h2d_bytes")
    assert syncs is not None
    assert copied is not None
    assert (syncs.noun(1), syncs.noun(-1), syncs.noun(2), syncs.unit) == ("sync", "sync", "syncs", "")
    assert (copied.noun(1), copied.noun(2), copied.unit) == ("H2D copies", "H2D copies", "bytes")
    assert metrics.find_counter("cache_misses") is None
    assert metrics.find_metric("h2d_bytes_per_step") == metrics.Metric(
        "h2d_bytes_per_step", "H2D bytes per step", "bytes/step"
    )


def test_intervals_without_information() -> None:
    assert metrics.is_constant("syncs_per_step", 100.0, 101.9)
    assert not metrics.is_constant("syncs_per_step", 100.0, 103.0)
    assert not metrics.is_constant("step_time", 1.0, 1.01)
    assert metrics.is_constant("step_time", 1.0, 1.0)
