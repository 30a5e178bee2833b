"""`next_step`: an edit at its line, or a command, and in all JSON of a result."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from profiler import load
from profiler.__main__ import main
from profiler.analyse.model.finding import GainMethod, Prediction
from profiler.analyse.timing.counts import run_counts
from profiler.check.model import FAIL, PASS, GateResult, WorseCause
from profiler.check.outputs.first_screen import gate_next_step
from profiler.core.errors import Exit
from profiler.diagnose.predict import parse_cures
from profiler.report.blocks import Action
from profiler.report.next_step import counts_next_step, next_step, what_if_next_step
from tests.approval.cases import RUNS
from tests.clinic.keep import ARCHIVES

COMPARE = Action("Measure what it gives", command="compare A B")


SUM = Action("Sum on the device", code="x.sum()", lines=("train.py:12", "train.py:14"))


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ((), ""),
        (
            (SUM, Action("Try it", command="try"), COMPARE),
            "Edit train.py:12 (also train.py:14): Sum on the device: x.sum(). Then measure what it gives: compare A B",
        ),
        ((Action("Start fewer processes."), COMPARE), "Start fewer processes. Then measure what it gives: compare A B"),
        ((Action("Mark the steps", code="profiler.step()", command="run"), COMPARE), "Mark the steps: run"),
        ((Action("Write it", code="two\nlines", lines=("a.py:1",)),), "Edit a.py:1: Write it."),
    ],
)
def test_sentence(actions: tuple[Action, ...], said: str) -> None:
    assert next_step(actions) == said


def test_a_run_says_which_line_to_edit_and_how_to_measure_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(RUNS / "slow-input.zip"), "--format", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    site = document["findings"][0]["sites"][0]
    assert document["next_step"].startswith(f"Edit {site['file']}:{site['line']}")
    assert re.search(r"Then measure .*: python -m profiler compare --before ", document["next_step"])


def test_a_prediction_says_whether_the_change_is_worth_it() -> None:
    much, little = (Prediction(GainMethod.BOUND, 1.0, after, 1.0) for after in (0.5, 0.99))
    cures = parse_cures("sync=0")
    assert what_if_next_step(cures, much, "a/run").endswith("python -m profiler diagnose a/run")
    assert what_if_next_step(cures, little, "RUN") == "Leave sync as it is: the change gives too little."


def test_counts_say_where_the_host_waits_most() -> None:
    counted = run_counts(load(ARCHIVES / "chunked_tokens-quiet.zip"))
    most = max((each for each in counted.counts if each.waits), key=lambda each: each.mean)
    assert most.site is not None
    assert counts_next_step(counted).startswith(f"Edit {most.site.file}:{most.site.line}: Have the host wait here less")
    keep = counts_next_step(replace(counted, counts=()))
    assert "check --baseline counters.json --update --virtual-cuda -- " in keep


def test_a_check_says_what_to_change() -> None:
    cause = WorseCause("sync", "a/train.py", 7, 0.0, 0.1, "It waits.", "Wait less often.")
    failed = GateResult(state=FAIL, causes=(cause,), mode="against")
    assert gate_next_step(failed).startswith(
        "Edit a/train.py:7: Wait less often. Then check again: python -m profiler check"
    )
    assert gate_next_step(GateResult(state=PASS)) == "Keep the change: the check found nothing against it."
    impossible = GateResult(state="ERROR", sentence="the program failed")
    assert gate_next_step(impossible) == "Make the check possible: the program failed."
