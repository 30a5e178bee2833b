"""How a program ended, in words."""

from __future__ import annotations

import pytest

from profiler.analyse.model import Analysis, Measure
from profiler.report.blocks import Callout
from profiler.report.build import build_report
from profiler.report.model import exit_status
from profiler.run.model import CollectorStatus, RunInfo, StepDefinition, StepKind

NO_TORCH = CollectorStatus("hooks", "ok", code="hooks-loaded", values={"python": 1, "torch": 0})


def info(state: str, code: int | None, *statuses: CollectorStatus) -> RunInfo:
    return RunInfo(
        1, "r", "r", ("x",), begin=10**9, end=10**9 + 10**8, state=state, exit_code=code, collectors=statuses
    )


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("complete", 0, ""),
        ("failed", 2, "failed after 100 ms with exit code 2"),
        ("failed", -9, "failed after 100 ms by SIGKILL"),
        ("interrupted", -2, "was interrupted after 100 ms by SIGINT"),
        ("failed", None, "failed after 100 ms"),
        ("failed", -999, "failed after 100 ms by signal 999"),
    ],
)
def test_the_words(state: str, code: int | None, words: str) -> None:
    assert exit_status(info(state, code)) == words


def test_before_torch() -> None:
    assert exit_status(info("failed", 2, NO_TORCH)).endswith("with exit code 2, before it imported torch")


@pytest.mark.parametrize("own", [True, False])
def test_the_report_says_it_first(own: bool) -> None:
    step = {"step_time": Measure("step_time", 0.1, "s", n=9)}
    analysis = Analysis(
        info("failed", 1), step, {}, {}, verdict="Slow.", step=None if own else StepDefinition(StepKind.WHOLE_RUN)
    )
    first = build_report(analysis).sections[0]
    said = [block for block in first.brief if isinstance(block, Callout)]
    assert "failed after 100 ms with exit code 1" in said[-1].full_text()
    assert (said[0].full_text() == "Slow.") is own, "a time that it took to fail has no cure"
