"""The verdict of a program recorded as it is, without a device's queue."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from profiler.analyse.model import Analysis, InputPart, LineCost, Measure, Phase
from profiler.run.model import RunInfo, Site
from tests.fakes.sentences import note, verdict

BUSY = "Computing takes 98% of the step: neither data nor Python is what limits this run."
LOADER, AFTER = Site("/x/train.py", 41, "main"), Site("/x/train.py", 60, "main")


def analysis(
    parts: Mapping[str, float],
    *,
    after: float = 0.0,
    found: bool = True,
    made: tuple[InputPart, ...] = (),
    samples: int = 90,
    nvml: float | None = None,
) -> Analysis:
    """Shares of a step of 1 s; `after` of it after the optimizer.

    :param samples: that each line has.
    :param nvml: the share of time in which NVML saw a GPU busy.
    """
    phases = (
        Phase("data", parts.get("input", 0.0), parts.get("input", 0.0), 0, 1, LOADER),
        Phase("after the optimizer", after, after, 0, 1, AFTER, "log_metrics"),
    )
    lines = tuple(
        LineCost(Site(f"/x/{name}.py", 7, "f"), "", share, share, 0, 1, samples, {name: share})
        for name, share in parts.items()
    )
    return Analysis(
        RunInfo(
            2, "r", "", ("t.py",), level="standard", facts={"device": "cuda" if nvml else "cpu", "device_label": "H200"}
        ),
        measures={
            "step_time": Measure("step_time", 1.0, "s"),
            "device_utilization": Measure(
                "device_utilization", nvml, "1", reason=note("no queue"), source="nvml" * bool(nvml)
            ),
        },
        breakdown={name: Measure(name, share, "s") for name, share in parts.items()},
        device_breakdown={},
        lines=lines,
        phases=phases if found else (),
        input=made,
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            analysis({"input": 0.61, "compute": 0.39}),
            "61% of each step is waiting for data (next(loader), train.py:41); computing takes 39%.",
        ),
        (
            analysis({"python": 0.4, "compute": 0.6}, after=0.38),
            "38% of each step runs after optimizer.step() at train.py:60 (log_metrics); computing takes 60%.",
        ),
        (
            analysis({"compute": 0.84, "python": 0.13, "input": 0.03}),
            f"{BUSY.removesuffix('.').replace('98', '84')}; 13% of it is Python, or waits in it at python.py:7 (f).",
        ),
        (
            analysis({"compute": 0.98, "python": 0.02}),
            BUSY,
        ),
        (
            analysis({"compute": 0.9, "python": 0.1}, after=0.72),
            "72% of each step runs after optimizer.step() at train.py:60 (log_metrics); computing takes 90%.",
        ),
        (
            analysis({"compute": 0.76, "framework": 0.18, "python": 0.06}),
            (
                "Computing takes 76% of the step; 18% of the step is the framework's own Python and the launching of "
                "its operators at framework.py:7 (f)."
            ),
        ),
        (
            analysis({"python": 0.9, "compute": 0.1}, after=0.2),
            "90% of each step is Python, or waits in it at python.py:7 (f); computing takes 10%.",
        ),
        (
            analysis({"checkpoint": 0.7, "framework": 0.3}),
            "70% of each step goes to saving at checkpoint.py:7 (f).",
        ),
    ],
)
def test_the_largest_thing_that_can_be_cured_with_its_line(given: Analysis, said: str) -> None:
    assert verdict(given) == said


def test_a_wait_for_data_names_what_the_loader_does() -> None:
    made = (
        InputPart("waiting for the workers", "main process", 0.6, 0.6),
        InputPart("dataset", "worker", 0.5, 0.9, Site("/x/data.py", 12, "Data.__getitem__")),
    )
    said = verdict(analysis({"input": 0.7, "compute": 0.3}, made=made))
    assert "the loader's time goes mostly to the dataset at data.py:12, in the worker" in said


def test_a_program_that_marks_itself_keeps_its_sentence() -> None:
    said = verdict(analysis({"python": 0.6, "input": 0.4}, found=False))
    assert said.startswith("The largest part of a step is python")


LIMITS = "the host is not what limits this run"
LOGS = "20% of each step goes to logging at log.py:7 (f)."
WAITS = "is waiting for data (next(loader), train.py:41)."


@pytest.mark.parametrize(
    ("given", "said"),
    [
        # with NVML's word that the device is busy, what the host waits in or launches late is no cause
        (
            analysis({"sync": 0.75, "framework": 0.25}, nvml=0.99),
            f"The H200 was busy 99% of the time, as NVML saw it (not its short gaps): {LIMITS}.",
        ),
        (
            analysis({"framework": 1.0}, nvml=0.99),
            f"The H200 was busy 99% of the time, as NVML saw it (not its short gaps): {LIMITS}.",
        ),
        (
            analysis({"sync": 0.7, "python": 0.1, "log": 0.2}, after=0.5, nvml=0.85),
            f"The H200 was busy 85% of the time, as NVML saw it (not its short gaps): {LIMITS}; besides, {LOGS}",
        ),
        (
            analysis({"sync": 0.75, "framework": 0.25}, nvml=0.4),
            "75% of each step is spent blocked on the device at sync.py:7 (f).",
        ),
    ],
)
def test_a_device_that_nvml_saw_busy_comes_first(given: Analysis, said: str) -> None:
    assert verdict(given) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            analysis({"input": 0.08, "unattributed": 0.92}, samples=10),
            f"What ran in 92% of each step is not known: 20 stack samples cannot say it. 8.0% of each step {WAITS}",
        ),
        (
            analysis({"input": 0.06, "compute": 0.87, "unattributed": 0.07}, samples=10),
            f"{BUSY.removesuffix('.').replace('98', '87')}; 6.0% of it {WAITS}",
        ),
        (
            analysis({"unattributed": 1.0}, samples=10),
            "What ran in 100% of each step is not known: 10 stack samples cannot say it.",
        ),
        (
            analysis({"unattributed": 1.0}, samples=10, found=False),
            "What ran in 100% of each step is not known: 10 stack samples cannot say it.",
        ),
        (
            analysis({"unattributed": 0.5, "compute": 0.5}, samples=10, after=0.3),
            "What ran in 50% of each step is not known: 20 stack samples cannot say it.",
        ),
    ],
)
def test_what_is_not_known_comes_before_any_cause(given: Analysis, said: str) -> None:
    assert verdict(given) == said
