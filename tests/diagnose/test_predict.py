"""Predictions by hand and of findings: what is parsed, what is refused, and which of both ways comes first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.analyse.analysis import analyse
from profiler.analyse.model.finding import Cure, GainMethod
from profiler.analyse.model.host import Phase
from profiler.core.errors import Exit, ProfilerError
from profiler.diagnose.findings import find
from profiler.diagnose.predict import parse_cures, what_if
from profiler.report.action_text import what_if_text
from profiler.report.finding_text import gain_text
from tests.diagnose.rules.test_rules import step
from tests.recorded.builders import MS, timeline

WAITING = ";".join(
    f"step {t} {t + 10}; launch {t} {t + 0.1} correlation={t + 1}; kernel {t} {t + 4} correlation={t + 1};"
    f"sync {t + 0.1} {t + 4} 3.9 train.py:9; tokenize {t + 4} {t + 10}"
    for t in range(0, 60, 10)
)
"""Six steps of a kernel of 4 ms, a wait for it, and 6 ms of input."""


def test_changes_are_parsed() -> None:
    assert parse_cures("sync=0, input=0.5,copies=pinned,aten::conv2d=2") == (
        Cure("sync"),
        Cure("input", 0.5),
        Cure("copies", word="pinned"),
        Cure("aten::conv2d", 2.0),
    )
    assert parse_cures("f(a=1)=0")[0].name == "f(a=1)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sync", "is no change"),
        ("=0", "is no change"),
        ("sync=0.5", "can only be 0"),
        ("input=fast", "is no factor"),
        ("input=-1", "is no factor"),
        ("input=nan", "is no factor"),
        ("copies=quick", "pinned or overlapped"),
    ],
)
def test_what_is_no_change_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ProfilerError, match=reason):
        parse_cures(text)


def test_without_a_queue_the_bound_answers() -> None:
    records = ";".join(f"step {t} {t + 10}; tokenize {t} {t + 4}" for t in range(0, 60, 10))
    analysis = analyse(timeline(records, tick=MS, device="cpu"))
    prediction = what_if(analysis, parse_cures("input=0.5"))
    assert (prediction.method, prediction.after) == (GainMethod.BOUND, pytest.approx(0.008))
    assert "nothing else can run beside them" in what_if_text((Cure("input", 0.5),), prediction)
    with pytest.raises(ProfilerError, match="activities of a device were not recorded"):
        what_if(analysis, parse_cures("kernels=fused"))
    with pytest.raises(ProfilerError, match="nothing is named 'forwrad'"):
        what_if(analysis, parse_cures("forwrad=0"))


def test_a_wait_costs_no_more_than_what_can_run_meanwhile() -> None:
    analysis = analyse(timeline(WAITING, tick=MS, device="host"))
    prediction = what_if(analysis, parse_cures("sync=0"))
    assert prediction.method is GainMethod.REPLAY
    assert prediction.before == pytest.approx(0.010)
    assert prediction.after == pytest.approx(0.0061)
    assert what_if(analysis, parse_cures("input=0")).after == pytest.approx(0.004, rel=0.01)
    with pytest.raises(ProfilerError, match=r"nothing is named 'nowhere'.* tokenize"):
        what_if(analysis, parse_cures("nowhere=0"))
    with pytest.raises(ProfilerError, match="checkpoint=0 was recorded"):
        what_if(analysis, parse_cures("checkpoint=0"))


def test_findings_have_both_ways_the_smaller_one_first() -> None:
    analysis = analyse(timeline(WAITING, tick=MS, device="host"))
    findings = {finding.rule.name: finding for finding in find(analysis)[0]}
    gains = findings["inline-tokenization"].gains
    assert {gain.method for gain in gains} == {GainMethod.BOUND, GainMethod.REPLAY}
    assert [gain.factor for gain in gains] == sorted(gain.factor for gain in gains)
    assert gain_text(findings["inline-tokenization"]).startswith("about 2.50×")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": 100 * n, "dur": 100, "tid": 1,
               "pid": 1} for n in range(3)]  # fmt: skip
    for n in range(3):
        common = {"ph": "X", "tid": 1, "pid": 1, "args": {"correlation": n + 1}}
        events += [
            {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 100 * n + 5, "dur": 5},
            {
                **common,
                "cat": "cuda_runtime",
                "name": "cudaDeviceSynchronize",
                "ts": 100 * n + 10,
                "dur": 80,
                "args": {},
            },
            {**common, "cat": "kernel", "name": "k", "ts": 100 * n + 8, "dur": 80, "tid": 7, "pid": 0},
        ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert main(["diagnose", str(path), "--what-if", "compute=0.5", "--format", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "what-if/1"
    assert document["predicted_step_seconds"] == pytest.approx(60e-6)
    assert document["replayed_step_seconds"] == pytest.approx(document["measured_step_seconds"])
    assert main(["diagnose", str(path), "--what-if", "compute"]) == Exit.USAGE


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ("compute=0,compute=0.5", "compute is named twice"),
        ("backward=0,compute=0", "backward is a part of a step"),
        ("compute=0,python=0", "nothing of the step would be left"),
    ],
)
def test_changes_that_contradict_each_other_are_refused(changes: str, fault: str) -> None:
    backward = Phase("backward", 0.05, 0.5, 0.5, 0.5)
    analysis = replace(step(compute=0.5, python=0.5), phases=(backward,))
    with pytest.raises(ProfilerError, match=fault):
        what_if(analysis, parse_cures(changes))
