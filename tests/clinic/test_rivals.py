"""What other tools tell is read from their output, and judged by the criteria of docs/clinic.md."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clinic import board, rivals
from tests.clinic.case import Case, every_case, read_case
from tests.clinic.judge import ASPECTS, Judged, Mark
from tests.clinic.keep import read_rows
from tests.clinic.program import placed
from tests.clinic.rivals import NotApplicableError, add_trace_step, judge_rival, try_tool, with_trace_step

TEACHER = read_case("momentum_teacher")
(LINE,) = (TEACHER.line(place)[1] for place in TEACHER.truth.lines)
CONTROL = TEACHER.model_copy(update={"kinds": ("control",)})
INPUT = TEACHER.model_copy(update={"kinds": ("input",)})
RESIDUAL = {
    "kind": "RESIDUAL_HEAVY", "status": "RESIDUAL-HEAVY", "severity": "critical", "section": "step_time",
    "summary": "Residual time is 42.0% of the typical CPU Step Time.",
    "action": "Inspect work outside traced phases, CPU stalls, logging, checkpointing, validation, or unobserved "
    "transfers.",
}  # fmt: skip
INPUT_BOUND = RESIDUAL | {
    "kind": "INPUT_BOUND", "status": "INPUT-BOUND", "summary": "Input wait is 91.2% of the typical CPU Step Time.",
    "action": "Increase workers, prefetch, or storage throughput.",
}  # fmt: skip
COMPUTE = RESIDUAL | {
    "kind": "COMPUTE_BOUND", "status": "COMPUTE-BOUND", "summary": "Compute-bound; backward is the largest phase.",
    "action": "Optimize model compute or reduce step cost.",
}  # fmt: skip
COMPILE = {
    "id": "no_torch_compile", "title": "torch.compile is not used", "score": 0.06, "risk": "low",
    "evidence": "torch 2.13.0+cpu supports torch.compile and it was never called. 100% of step time is compute.",
    "suggestion": "Try `model = torch.compile(model)`. Compare with more warmup steps.",
    "expected_effect": "Fewer kernel launches and less Python overhead per step.",
    "score_basis": "prior 0.06 for cpu x compute ('other') share",
}  # fmt: skip
LOADER = {
    "id": "dataloader_bound", "title": "Training waits on the DataLoader (num_workers=0)", "score": 0.91, "risk": "low",
    "evidence": "91% of step time is spent waiting for the next batch (204.0 ms per step).",
    "suggestion": "Set num_workers=2 and persistent_workers=True on the DataLoader.",
    "expected_effect": "At most 11.34x (the step time without any data wait), reached only if loading fully overlaps.",
    "score_basis": "measured data-wait share of step time",
}  # fmt: skip


def scalene_line(number: int, text: str, native: float, python: float, system: float) -> dict[str, Any]:
    """A line of Scalene's profile, as far as it is read."""
    return {"lineno": number, "line": text, "n_cpu_percent_c": native, "n_cpu_percent_python": python,
            "n_sys_percent": system}  # fmt: skip


SCALENE = {"files": {
    "/x/train.py": {"lines": [
        scalene_line(3, "import torch\n", 50.0, 1.0, 9.0),
        scalene_line(46, "    loss.backward()\n", 2.2, 3.7, 5.9),
        scalene_line(LINE, "        old.data = old.data * keep\n", 2.1, 13.3, 4.5),
    ]},
    "/x/site-packages/lib/__init__.py": {"lines": [scalene_line(7, "    work()\n", 70.0, 0.0, 0.0)]},
}}  # fmt: skip
FRAMES = ["train.py(25): follow", "train.py(47): main", "train.py(54): <module>"]
PROFILER = [
    {"name": "aten::mul", "share": 0.1151, "stack": ["torch/_tensor.py(39): wrapped", *FRAMES]},
    {"name": "ProfilerStep*", "share": 0.086, "stack": []},
    {"name": FRAMES[0], "share": 0.068, "stack": FRAMES[1:]},
]


def writes(file: str, told: Any, output: str = "") -> Callable[[Sequence[str | Path]], str]:
    """Stands for a tool that writes a report."""

    def run(words: Sequence[str | Path]) -> str:
        path = next((Path(word) for word in words if str(word).endswith(file)), Path(str(words[3])) / "run" / file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(told), encoding="utf-8")
        return output

    return run


def judged(tool: str, told: Any, case: Case = TEACHER) -> Judged:
    answer = judge_rival(case, {"case": case.name, "tool": tool, "told": told})[1]
    assert answer is not None
    return answer


def marks(answer: Judged) -> list[str]:
    return [str(answer.marks[name]) for name in ("cause", "line", "advice", "gain")]


def traceml(verdict: dict[str, str], tmp_path: Path) -> Any:
    with placed(TEACHER) as folder:
        run = writes("final_summary.json", {"primary_diagnosis": verdict})
        return rivals.run_traceml(tmp_path / "python", TEACHER, folder, run)


def test_the_verdict_of_traceml_is_judged(tmp_path: Path) -> None:
    residual, waiting, compute = (traceml(verdict, tmp_path) for verdict in (RESIDUAL, INPUT_BOUND, COMPUTE))
    assert marks(judged("TraceML", residual)) == ["partly", "empty", "wrong", "empty"]
    assert judged("TraceML", residual).verdict is Mark.PARTLY
    assert marks(judged("TraceML", waiting))[0] == "wrong", "the input is not at fault"
    assert judged("TraceML", waiting, INPUT).marks["cause"] is Mark.RIGHT
    assert judged("TraceML", compute).verdict is Mark.EMPTY
    assert judged("TraceML", compute, CONTROL).verdict is Mark.RIGHT
    assert judged("TraceML", residual, CONTROL).false == (
        "a cause where there is none: RESIDUAL-HEAVY: Residual time is 42.0% of the typical CPU Step Time.",
    )


def test_the_findings_of_train_doctor_are_judged(tmp_path: Path) -> None:
    def doctor(*findings: dict[str, Any]) -> Any:
        output = "warning: busy\n" + json.dumps({"error": None, "findings": findings})
        return rivals.run_train_doctor(tmp_path / "python", TEACHER, tmp_path, lambda words: output)

    assert marks(judged("train-doctor", doctor(LOADER, COMPILE), INPUT)) == ["right", "empty", "wrong", "right"]
    assert judged("train-doctor", doctor(LOADER), CONTROL).false[0].startswith("a gain where nothing can be gained")
    assert judged("train-doctor", doctor(COMPILE), CONTROL).verdict is Mark.RIGHT
    assert judged("train-doctor", doctor()).verdict is Mark.EMPTY
    truth = TEACHER.truth.model_copy(update={"harmful": ("torch\\.compile",)})
    harmed = TEACHER.model_copy(update={"truth": truth})
    assert judged("train-doctor", doctor(COMPILE), harmed).verdict is Mark.WRONG
    assert not judged("train-doctor", doctor(LOADER, COMPILE), harmed).false, "a prior that does not come first"


def test_the_first_lines_of_scalene_are_judged(tmp_path: Path) -> None:
    told = rivals.run_scalene(tmp_path / "python", TEACHER, tmp_path, writes("scalene.json", SCALENE))
    assert [row["line"] for row in told] == [LINE, 46, 7], "no import, and the library last"
    owned = TEACHER.model_copy(update={"truth": TEACHER.truth.model_copy(update={"owner": "lib", "lines": ()})})
    assert judged("Scalene", told, owned).marks["cause"] is Mark.RIGHT
    told.pop()
    assert marks(judged("Scalene", told)) == ["right", "right", "empty", "empty"]
    assert judged("Scalene", told).verdict is Mark.PARTLY, "it gives no advice"
    assert marks(judged("Scalene", told[::-1]))[:2] == ["partly", "partly"]
    assert judge_rival(CONTROL, {"tool": "Scalene", "told": told})[1] is None, "it always lists rows"
    once = TEACHER.model_copy(update={"truth": TEACHER.truth.model_copy(update={"recurrence": "once"})})
    commands: list[Sequence[str | Path]] = []

    def run(words: Sequence[str | Path]) -> str:
        commands.append(words)
        return writes("scalene.json", SCALENE)(words)

    for case in (TEACHER, once):
        rivals.run_scalene(tmp_path / "python", case, tmp_path, run)
    assert ["--off" in words for words in commands] == [True, False]


def test_the_first_rows_of_torch_profiler_are_judged(tmp_path: Path) -> None:
    told = rivals.run_torch_profiler(tmp_path / "python", TEACHER, tmp_path, writes("rows.json", PROFILER))
    assert told[0]["stack"] == FRAMES, "the user's frames"
    assert marks(judged("torch.profiler", told)) == ["right", "right", "empty", "empty"]
    assert marks(judged("torch.profiler", told[1:]))[1] == "partly"
    short = TEACHER.model_copy(update={"truth": TEACHER.truth.model_copy(update={"steps": 8})})
    with pytest.raises(NotApplicableError, match="fewer than 9 steps"):
        rivals.run_torch_profiler(tmp_path / "python", short, tmp_path, writes("rows.json", PROFILER))


@pytest.mark.parametrize(
    ("name", "model", "update"),
    [
        ("built_samples", "policy", "optimizer.step()"),
        ("momentum_teacher", "student", "optimizer.step()"),
        ("fit_saver", "self.net", "self._update("),
        ("replay_draws", "agent.q", "agent.learn("),
        ("rope_tables", "model", "optimizer.step()"),
    ],
)
def test_the_body_of_the_training_loop_becomes_a_step_of_traceml(name: str, model: str, update: str) -> None:
    with placed(read_case(name)) as folder:
        add_trace_step(folder)
        (source,) = (text for path in folder.rglob("*.py") if "trace_step" in (text := path.read_text("utf-8")))
    (block,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.With) and "trace_step" in ast.unparse(node.items[0])
    )
    assert update in ast.unparse(block)
    assert model in ast.unparse(block.items[0])
    assert source.index("traceml.init") < source.index("trace_step(")


def test_a_program_without_a_loop_of_training_is_not_for_traceml(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n\nprint(torch.ones(3))\n")
    assert with_trace_step((tmp_path / "train.py").read_text()) == ""
    with pytest.raises(NotApplicableError, match="no loop of training"):
        add_trace_step(tmp_path)
    (tmp_path / "train.py").write_text("import lightning\n\nlightning.Trainer().fit(model)\n")
    add_trace_step(tmp_path)
    assert "traceml" not in (tmp_path / "train.py").read_text()


def test_a_result_is_kept_until_the_program_or_the_tool_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rivals, "_version", lambda python, package: "1.0")
    told = [{"file": "train.py", "line": 1, "text": "x", "Python": 9, "native": 0, "system": 0}]
    monkeypatch.setitem(rivals.TOOLS, "Scalene", ("scalene", lambda *_: told, rivals.read_scalene))
    row = try_tool(TEACHER, "Scalene", tmp_path, None)
    assert (row["told"], row["version"]) == (told, "1.0")
    assert try_tool(TEACHER, "Scalene", tmp_path, row) is row
    assert try_tool(TEACHER, "Scalene", tmp_path, {**row, "version": "0.9"}) == row
    assert "told" in try_tool(TEACHER, "Scalene", tmp_path, {**row, "failed": "nothing after 120 s"})
    ranks = TEACHER.model_copy(update={"ranks": 2})
    assert try_tool(ranks, "Scalene", tmp_path, None)["not_applicable"] == "several ranks"


def test_a_tool_without_a_report_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rivals, "_version", lambda python, package: "1.0")
    (tmp_path / "scalene").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "scalene").chmod(0o755)
    row = try_tool(TEACHER, "Scalene", tmp_path / "python", None)
    assert row["failed"] == "it ended without a report"
    told, answer = judge_rival(TEACHER, row)
    assert (told.screen, answer) == ("it ended without a report", None)


def test_the_board_shows_our_losses() -> None:
    program = board.hash_of_case(TEACHER, with_truth=False)
    row = {"case": TEACHER.name, "tool": "TraceML", "version": "0.5.0", "program": program, "told": RESIDUAL}
    ours = {"case": TEACHER.name, "condition": "quiet", "verdict": "wrong", "false": ["a lie"], "screen": "",
            "entries": [], "marks": dict.fromkeys(ASPECTS, "empty")}  # fmt: skip
    text = board.board({TEACHER.name: TEACHER}, [ours], [row, row | {"tool": "Scalene", "program": "older"}])
    assert "- momentum_teacher: ours wrong, TraceML partly" in text
    assert "| TraceML | 0.5.0 | 1 | 0 | 1 | 0 | 0 | 0 | 0 | 0 + 1 of 1 |" in text
    assert "| Scalene |  | 0 |" in text, "the program has changed"
    assert "**TraceML**, partly (cause partly, line empty, advice wrong, gain empty): RESIDUAL-HEAVY" in text
    assert "| wrong | partly |  |" in text


def test_every_result_is_about_a_case() -> None:
    names = {case.name for case in every_case()}
    rows = read_rows(rivals.RESULTS)
    assert {row["case"] for row in rows} <= names
    assert all(len({"told", "failed", "not_applicable"} & set(row)) == 1 for row in rows)
