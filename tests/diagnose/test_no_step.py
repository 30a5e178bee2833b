"""A run in which nothing ended a step: what took how long, and neither a gain nor anything of each step (law 1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler import analyse_run
from profiler.analyse.model.analysis import Analysis
from profiler.diagnose.model import RunVerdict
from profiler.report.build import build_report
from profiler.run.model import HOOKS, CollectorStatus, Run
from profiler.run.steps import add_steps
from profiler.run.tables import GARBAGE_COLLECTION
from tests.recorded.builders import MS, RunBuilder

IMPORT = ("train.py:2:<module>", "<frozen importlib._bootstrap>:1176:_find_and_load",
          "/usr/lib/python3.11/site-packages/torch/__init__.py:3:<module>")  # fmt: skip
CLUSTER = ("train.py:20:<module>", "/usr/lib/python3.11/site-packages/centres/kmeans.py:9:move")
LITTLE = ("train.py:30:<module>",)


def program(state: str = "complete", **info: object) -> Run:
    """2.5 s of an import, 1.4 s in a library, and 0.1 s of a line."""
    hooks = CollectorStatus(HOOKS, "ok", code="hooks-loaded", values={"python": 1, "torch": 1})
    builder = RunBuilder(device="cpu", collectors=(hooks,), state=state, span=(1, 4_000 * MS))
    now = 0
    for frames, count in ((IMPORT, 250), (CLUSTER, 140), (LITTLE, 10)):
        for _ in range(count):
            builder.stack(frames, now, now + 10 * MS, tid=1, pid=1)
            now += 10 * MS
    builder.region(GARBAGE_COLLECTION, 100 * MS, 900 * MS, tid=1, pid=1)
    builder.sample("stacks.period_s", now, 0.01, pid=1)
    run = add_steps(builder.build())
    return replace(run, info=replace(run.info, **info)) if info else run


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyse_run(program())


def test_it_tells_what_took_most_of_the_run(analysis: Analysis) -> None:
    assert analysis.outcome == RunVerdict.NO_STEP
    assert analysis.headline == "No training step was seen."
    assert analysis.details == (
        "Code of centres at train.py:20, mostly in centres.kmeans.move(), took 1.40 s, 35% of the run.",
        "Importing torch at train.py:2 took 2.50 s, 63% of the run.",
    ), "every program imports torch; garbage of an import is a part of it, and a line with 2% is not told"


def test_no_cure_has_a_gain(analysis: Analysis) -> None:
    assert not [finding for finding in analysis.findings if finding.gains or not finding.is_of_run]
    assert "each step" not in analysis.verdict
    assert "every step" not in analysis.verdict


def test_its_first_screen_tells_how_to_mark_steps(analysis: Analysis) -> None:
    first = build_report(analysis).first
    assert first.headline.text == "No training step was seen"
    assert first.why == analysis.details[: len(first.why)]
    assert first.actions[0].code == "profiler.step()"
    assert first.picture is None
    assert "Shares of the run" in first.places_note


def test_a_program_that_fails_is_to_be_repaired_first() -> None:
    first = build_report(analyse_run(program("failed", exit_code=1))).first
    assert first.headline.text.startswith("The program failed")
    assert "No step was seen, so nothing can be said about the speed of its training." in first.why
    assert "Importing torch at train.py:2 took 2.50 s, 63% of the run." in first.why
