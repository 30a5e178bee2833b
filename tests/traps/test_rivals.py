"""What other tools tell is read from their output and judged by the criteria of reports/accuracy/rivals.md."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from tests.traps.cases import CASES, SCRIPTS, Case
from tests.traps.rival_judge import CATEGORIES, RivalJudgement, functions_at_fault, judge_rival
from tests.traps.rival_table import page
from tests.traps.rival_tools import (
    MODELS,
    TOOLS,
    Row,
    Telling,
    read_scalene,
    read_torch_profiler,
    read_traceml,
    with_trace_step,
)
from tests.traps.rivals import our_rows, tell

COLLATE = next(case for case in CASES if case.name == "plain-slow-collate")
HEALTHY = Case("healthy")


@pytest.mark.parametrize("script", sorted(MODELS))
def test_the_body_of_the_training_loop_is_put_into_a_step_of_traceml(script: str) -> None:
    source = with_trace_step((SCRIPTS / script).read_text(encoding="utf-8"), MODELS[script])
    (block,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.With) and "trace_step" in ast.unparse(node.items[0])
    )
    body = ast.unparse(block)
    assert ".backward()" in body
    assert ".zero_grad(" in body
    assert source.index("traceml.init") < source.index("trace_step(")


def test_every_script_has_a_model_for_traceml() -> None:
    two_loops = {"made.py"}  # with a model each; the tools are not run on it
    assert {case.script for case in CASES} - set(MODELS) == two_loops


def test_traceml_names_the_category_of_an_illness() -> None:
    summary = {
        "primary_diagnosis": {"kind": "INPUT_BOUND", "status": "INPUT-BOUND", "summary": "72%.", "action": "Add."}
    }
    telling = read_traceml(summary)
    assert telling == Telling("INPUT-BOUND: 72%. Add.", kind="INPUT_BOUND")
    assert judge_rival(COLLATE, telling) == RivalJudgement(has_cause=True, has_line=False, has_gain=False)
    assert judge_rival(COLLATE, Telling("", kind="RESIDUAL_HEAVY")).has_cause is False
    assert judge_rival(HEALTHY, telling).has_cause is False, "a false alarm"
    assert judge_rival(HEALTHY, Telling("", kind="COMPUTE_BOUND")).has_cause is True
    assert not CATEGORIES.keys() & {"COMPUTE_BOUND", "BALANCED", "NO_CLEAR_PERFORMANCE_BOTTLENECK"}


def test_the_first_lines_of_scalene_are_judged() -> None:
    def line(number: int, python: float, native: float) -> dict[str, float]:
        return {"lineno": number, "n_cpu_percent_python": python, "n_cpu_percent_c": native, "n_sys_percent": 0.0}

    (ill,) = COLLATE.lines()
    lines = [line(1, 5.0, 0.0), line(ill, 20.0, 1.0), line(2, 1.0, 19.0), line(3, 6.0, 0.0)]
    profile = {"files": {"/other/model.py": {"lines": [line(ill, 99.0, 0.0)]}, "/x/plain.py": {"lines": lines}}}
    telling = read_scalene(profile, Path("/y/plain.py"))
    assert [row.lines for row in telling.rows] == [(ill,), (2,), (3,)]
    assert telling.quote == f"line {ill}: Python 20%, native 1%, system 0%"
    assert judge_rival(COLLATE, telling) == RivalJudgement(has_cause=True, has_line=True, has_gain=False)
    later = Telling("", rows=(Row("line 1", 0.5, lines=(1,)), *telling.rows[:1]))
    assert judge_rival(COLLATE, later) == RivalJudgement(has_cause=False, has_line=True, has_gain=False)
    assert judge_rival(HEALTHY, telling).has_cause is None


def test_the_first_rows_of_torch_profiler_are_judged() -> None:
    stack = ["torch/utils/data/_utils/fetch.py(49): fetch", "/x/plain.py(98): <module>"]
    rows = [
        {"name": "/x/plain.py(50): stack", "share": 0.4, "stack": stack},
        {"name": "aten::mm", "share": 0.1, "stack": ["nn.Module: Linear_1"]},
    ]
    telling = read_torch_profiler(rows, Path("/x/plain.py"))
    assert [row.functions for row in telling.rows] == [("stack",), ()]
    assert telling.quote == "plain.py(50): stack: 40% of self CPU time, under stack() of plain.py"
    assert functions_at_fault(COLLATE) == {"stack"}
    assert judge_rival(COLLATE, telling) == RivalJudgement(has_cause=True, has_line=True, has_gain=False)
    loader = Telling("", rows=(Row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0.5),))
    assert judge_rival(COLLATE, loader) == RivalJudgement(has_cause=True, has_line=False, has_gain=False)
    float64 = next(case for case in CASES if case.name == "float64")
    assert judge_rival(float64, telling) == RivalJudgement(has_cause=False, has_line=None, has_gain=False)


@pytest.mark.parametrize(
    ("words", "is_gain"), [("about 1.4× as fast without it", True), ("2x faster", True), ("52% of it", False)]
)
def test_a_gain_is_a_number_and_no_share(words: str, is_gain: bool) -> None:
    assert judge_rival(COLLATE, Telling(words, kind="INPUT_BOUND")).has_gain is is_gain


def test_a_tool_that_fails_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> Telling:
        raise subprocess.CalledProcessError(3, "traceml")

    monkeypatch.setitem(TOOLS, "TraceML", fail)
    monkeypatch.setattr("tests.traps.rivals.steps_of", lambda case: 60)
    row = tell(COLLATE, "TraceML", tmp_path)
    assert row["quote"] == "ended with exit code 3"
    assert not row["has_cause"]


def test_our_rows_are_those_of_quiet_recordings(tmp_path: Path) -> None:
    row = {"case": "a", "ill": ["a"], "verdict": "A.", "is_right": True, "has_line": False, "gain": 1.2}
    path = tmp_path / "results.jsonl"
    path.write_text(
        "".join(json.dumps(row | {"condition": name}) + "\n" for name in ("quiet", "busy")), encoding="utf-8"
    )
    (ours,) = our_rows(path)
    assert (ours["quote"], ours["has_cause"], ours["has_line"], ours["has_gain"]) == ("A.", True, False, True)


def test_the_page_counts_cases_that_every_tool_ran() -> None:
    row = {
        "case": "a",
        "ill": ["a"],
        "version": "1",
        "quote": "x|y",
        "has_line": True,
        "has_gain": False,
    }
    rows = [row | {"tool": "A", "has_cause": True}, row | {"tool": "B", "has_cause": False}]
    rows.append(row | {"tool": "B", "case": "b", "has_cause": True})
    text = page(rows)
    assert "Of the 1 cases" in text
    assert "| A | 1 of 1 | 1 of 1 | 0 of 1 | does not apply |" in text
    assert "| B | 0 of 1 |" in text
    assert "x\\|y" in text
