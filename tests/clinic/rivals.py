"""Runs cases under other tools as their documentation tells, and reads what each one tells, as `told` reads ours.

docs/clinic.md holds the criteria, under "What other tools tell".
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil

from tests.clinic.case import Case
from tests.clinic.judge import Judged, Mark, judge, verdict_of
from tests.clinic.keep import REPORTS, hash_of_case
from tests.clinic.program import environment, placed
from tests.clinic.told import Entry, Told

RESULTS: Final = REPORTS / "rivals.jsonl"
TIMEOUT_S: Final = 120.0
_PROFILER_SCRIPT: Final = Path(__file__).parent / "torch_profiler_script.py"
_SCALENE_SCRIPT: Final = Path(__file__).parent / "scalene_script.py"
_PROFILED: Final = 9
"""Steps that torch.profiler's schedule needs: one waits, one warms up, six are recorded, and the last one ends."""
_SKIPPED: Final = 15
_HEALTHY: Final = ("COMPUTE_BOUND", "NO_CLEAR_PERFORMANCE_BOTTLENECK", "INSUFFICIENT_STEP_TIME_DATA")
"""TraceML's verdicts that name no cause."""
_TRACEML_HEAD: Final = """
import traceml_ai as traceml
from torch.utils.data import DataLoader as _DataLoader
traceml.init(mode="auto")
def _fetched(batches):
    return batches if isinstance(batches, _DataLoader) else traceml.wrap_dataloader_fetch(batches)
"""
_TRAINERS: Final = re.compile(r"^(import|from) (lightning|pytorch_lightning|transformers)\b", re.MULTILINE)
"""Libraries whose trainers TraceML times without a change of the program."""
_TIMED: Final = ("enumerate", "zip", "DataLoader")
"""Functions whose results TraceML need not wrap: it times the `DataLoader` in them already."""
_INPUT: Final = re.compile(r"(?i)\binput|loader|dataset|batches|preprocess|collat|items?\b")
"""Titles about the input."""
_CPU: Final = {"Python": "n_cpu_percent_python", "native": "n_cpu_percent_c", "system": "n_sys_percent"}

Run = Callable[[Sequence[str | Path]], str]
"""Runs a command in the folder of the case and returns its standard output."""


class NotApplicableError(Exception):
    """The tool does not apply to the case; the message is the reason."""


def run_traceml(python: Path, case: Case, folder: Path, run: Run) -> Any:
    """TraceML's verdict on the program, after the changes of its quick start."""
    add_trace_step(folder)
    script, *options = case.command
    words = [python.parent / "traceml", "run", "--logs-dir", folder / "logs", "--run-name", "run", script]
    run([*words, "--args", *options] if options else words)
    summary = json.loads((folder / "logs" / "run" / "final_summary.json").read_text(encoding="utf-8"))
    return {name: summary["primary_diagnosis"][name] for name in ("kind", "status", "summary", "action")}


def add_trace_step(folder: Path) -> None:
    """Change the program's file with the innermost loop that updates weights, as TraceML's quick start tells."""
    files = sorted(folder.rglob("*.py"), key=lambda path: "site-packages" in path.parts)
    sources = {path: path.read_text(encoding="utf-8") for path in files}
    for path, source in sources.items():
        if changed := with_trace_step(source):
            path.write_text(changed, encoding="utf-8")
            return
    if not any(map(_TRAINERS.search, sources.values())):
        raise NotApplicableError("no loop of training with its model is found")


def with_trace_step(source: str) -> str:
    """The source with a step of TraceML around the body of its loop of training; empty: there is none, or no model."""
    tree = ast.parse(source)
    found = _loop_of_training(tree)
    model = found and _model(tree, found[1])
    if not found or not model:
        return ""
    loop, _ = found
    if isinstance(loop, ast.For) and not (isinstance(loop.iter, ast.Call) and _name(loop.iter) in _TIMED):
        loop.iter = ast.Call(ast.Name("_fetched"), [loop.iter], [])
    context = ast.withitem(ast.parse(f"traceml.trace_step({model})", mode="eval").body)
    loop.body = [ast.With([context], loop.body)]
    start = 1 if ast.get_docstring(tree) else 0
    tree.body[start:start] = ast.parse(_TRACEML_HEAD).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _loop_of_training(tree: ast.Module) -> tuple[ast.For | ast.While, ast.AST] | None:
    """The innermost loop that updates weights, itself or in a function that it calls, and what encloses the loop."""
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]
    updating = {scope.name for scope in scopes[1:] if any(map(_is_update, ast.walk(scope)))}
    for is_training in (_is_update, lambda node: isinstance(node, ast.Call) and _name(node) in updating):
        loops = [
            (loop, scope)
            for scope in reversed(scopes)
            for loop in ast.walk(scope)
            if isinstance(loop, (ast.For, ast.While)) and any(map(is_training, _nodes(loop.body)))
        ]
        if loops:
            return min(loops, key=lambda pair: sum(1 for _ in _nodes(pair[0].body)))
    return None


def _is_update(node: ast.AST) -> bool:
    """Whether this is a call of `optimizer.step()`."""
    return isinstance(node, ast.Call) and _name(node) == "step" and "opt" in ast.unparse(node.func).lower()


def _model(tree: ast.Module, scope: ast.AST) -> str:
    """The expression of the model: what is asked for its `parameters()`, as the function of the loop names it."""
    used = {ast.unparse(node) for node in _own(scope) if isinstance(node, (ast.Name, ast.Attribute))}
    if isinstance(scope, ast.FunctionDef):
        used |= {node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg)}
    for node in (*_own(scope), *ast.walk(tree)):
        if isinstance(node, ast.Call) and _name(node) == "parameters" and isinstance(node.func, ast.Attribute):
            model = ast.unparse(node.func.value)
            if model.replace(".", "").isidentifier():
                same = [name for name in sorted(used) if name.partition(".")[2] == model.partition(".")[2] != ""]
                if model.partition(".")[0] in used or same:
                    return model if model.partition(".")[0] in used else same[0]
    return ""


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module or function, without those of the functions and classes in it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield from _own(node)


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (node for statement in body for node in ast.walk(statement))


def read_traceml(case: Case, kept: Any) -> Told:
    """Its verdict is the only entry; one that healthy programs get too is none."""
    words = f"{kept['status']}: {kept['summary']}"
    verdict = Entry(words, "", kept["action"], (), "", 0.0, None, is_limit=False, is_sure=True)
    return Told({}, f"{words} {kept['action']}", () if kept["kind"] in _HEALTHY else (verdict,))


def run_train_doctor(python: Path, case: Case, folder: Path, run: Run) -> Any:
    """The findings of `train-doctor profile`, in their order."""
    profile = [python.parent / "train-doctor", "profile", "--json", "--out", folder / "doctor", "--", python]
    output = run([*profile, *case.command])
    told = json.loads(output[output.index("{") :])
    names = ("title", "evidence", "suggestion", "expected_effect", "score_basis")
    return {"error": told.get("error"), "findings": [{name: each[name] for name in names} for each in told["findings"]]}


def read_train_doctor(case: Case, kept: Any) -> Told:
    """A finding that rests on a prior is not sure. Its words count as the first screen only where it comes first."""
    entries = tuple(
        Entry(
            each["title"], each["evidence"], each["suggestion"], (), "", 0.0, _limit(each["expected_effect"]),
            is_limit=True, is_sure=not each["score_basis"].startswith("prior"),
        )
        for each in kept["findings"]
    )  # fmt: skip
    return Told({}, " ".join(f"{each.title}. {each.evidence} {each.advice}" for each in entries[:1]), entries)


def _limit(text: str) -> tuple[float, float, float] | None:
    """The number of `At most 1.53x ...`."""
    words = text.removeprefix("At most ").partition("x")
    return (float(words[0]),) * 3 if text.startswith("At most ") and words[1] else None


def run_scalene(python: Path, case: Case, folder: Path, run: Run) -> Any:
    """The three lines of the user's files with the largest share of the time."""
    out = folder / "scalene.json"
    script, *options = case.command
    words = [python.parent / "scalene", "run", "--cpu-only", "-o", out]
    if case.truth.steps > _SKIPPED and case.truth.recurrence in ("each step", "periodic", "growing", "none"):
        run([*words, "--off", "--program-path", folder, _SCALENE_SCRIPT, "---", script, *options])
    else:
        run([*words, script, "---", *options] if options else [*words, script])
    profile = json.loads(out.read_text(encoding="utf-8"))
    lines = [
        {"file": _short(name), "line": line["lineno"], "text": line["line"].strip()}
        | {column: round(line[key]) for column, key in _CPU.items()}
        for name, file in profile.get("files", {}).items()
        for line in file["lines"]
        if not line["line"].strip().startswith(("import ", "from "))
    ]
    lines.sort(key=lambda line: -sum(line[column] for column in _CPU))
    first_of_library = [line for line in lines[:1] if "/" in line["file"]]
    return [line for line in lines if "/" not in line["file"]][:3] + first_of_library


def _short(name: str) -> str:
    """The name of a user's file, or the path of a library's file from `site-packages` on."""
    return name.partition("/site-packages/")[2] or Path(name).name


def read_scalene(case: Case, kept: Any) -> Told:
    """A row names one line. Where a library's line comes first, the first row names the library too."""
    rows = [
        _row(f"{row['file']}:{row['line']}: Python {row['Python']}%, native {row['native']}%: {row['text']}",
             ((row["file"], row["line"]),))
        for row in kept
        if sum(row[column] for column in _CPU)
    ]  # fmt: skip
    if len(rows) > 1 and "/" in rows[-1].lines[0][0]:
        library = rows.pop()
        rows[0] = replace(rows[0], title=f"{rows[0].title}; most in {library.title}")
    return Told({}, "", tuple(rows))


def run_torch_profiler(python: Path, case: Case, folder: Path, run: Run) -> Any:
    """The three rows of operators and functions with the largest self CPU time."""
    if case.truth.steps < _PROFILED:
        raise NotApplicableError(f"fewer than {_PROFILED} steps")
    out = folder / "rows.json"
    run([python, _PROFILER_SCRIPT, str(min(_SKIPPED, case.truth.steps - _PROFILED)), out, *case.command])
    rows = json.loads(out.read_text(encoding="utf-8"))
    return [
        {"name": row["name"].removeprefix(f"{folder}/"), "share": round(row["share"], 3),
         "stack": [frame for frame in row["stack"] if frame.startswith(tuple(_user_files(case)))]}
        for row in rows
    ]  # fmt: skip


def read_torch_profiler(case: Case, kept: Any) -> Told:
    """A row names the innermost function of the user's files in it: the lines of the truth in that function."""
    files = tuple(_user_files(case))
    rows = []
    for row in kept:
        frames = [
            frame for frame in (row["name"], *row["stack"]) if frame.startswith(files) and "<module>" not in frame
        ]
        where = f", under {frames[0]}" if frames and frames[0] != row["name"] else ""
        rows.append(_row(f"{row['name']}: {row['share']:.0%} of self CPU time{where}", _truth_in(case, frames[:1])))
    return Told({}, "", tuple(rows))


def _user_files(case: Case) -> list[str]:
    """The beginnings of frames that are the user's."""
    return [f"{path.name}(" for path in case.folder.glob("*.py")]


def _truth_in(case: Case, frames: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The lines of the truth whose innermost function is one of these frames, `FILE(LINE): FUNCTION`."""
    found = []
    for file, number in map(case.line, case.truth.lines):
        tree = ast.parse((case.folder / file).read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        around = [node for node in functions if node.lineno <= number <= (node.end_lineno or number)]
        name = max(around, key=lambda node: node.lineno).name if around else None
        if any(frame.startswith(f"{file}(") and frame.endswith(f": {name}") for frame in frames):
            found.append((file, number))
    return tuple(found)


def _row(title: str, lines: tuple[tuple[str, int], ...]) -> Entry:
    return Entry(title, "", "", lines, "", 0.0, None, is_limit=False, is_sure=False)


TOOLS: Final = {
    "TraceML": ("traceml-ai", run_traceml, read_traceml),
    "train-doctor": ("train-doctor", run_train_doctor, read_train_doctor),
    "Scalene": ("scalene", run_scalene, read_scalene),
    "torch.profiler": ("torch", run_torch_profiler, read_torch_profiler),
}
"""Tool -> its package, what runs it, and what reads what was kept."""
LISTS_ROWS: Final = ("Scalene", "torch.profiler")
"""Tools that always list rows, and never say that a program is healthy."""


def try_tool(case: Case, tool: str, python: Path, done: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What a tool tells about a case: kept with its version and the program, or the reason why there is nothing.

    A run that failed is made again, because the machine may have been too busy.
    """
    package, run, _ = TOOLS[tool]
    state = {"version": _version(python, package), "program": hash_of_case(case, with_truth=False)}
    if done and "failed" not in done and {name: done[name] for name in state} == state:
        return done
    row = {"case": case.name, "tool": tool, **state}
    if case.truth.rules is not None or case.truth.parts or case.truth.style:
        return row | {"not_applicable": "an older case, which is judged by what only our reports have"}
    if case.is_cuda or case.ranks > 1 or case.stop_after:
        why = "a program for a GPU" if case.is_cuda else "several ranks" if case.ranks > 1 else "stopped by a signal"
        return row | {"not_applicable": why}
    with placed(case) as folder:
        try:
            return row | {"told": run(python, case, folder, lambda words: _run(case, folder, words))}
        except NotApplicableError as error:
            return row | {"not_applicable": str(error)}
        except subprocess.TimeoutExpired:
            return row | {"failed": f"nothing after {TIMEOUT_S:.0f} s"}
        except (FileNotFoundError, ValueError, KeyError) as error:
            print(f"{case.name}: {tool}: {error}", file=sys.stderr)
            return row | {"failed": "it ended without a report"}


def _run(case: Case, folder: Path, words: Sequence[str | Path]) -> str:
    """Run a command to its end. A tool that does not come to its end tells nothing."""
    process = subprocess.Popen(
        [str(word) for word in words], cwd=folder, env=environment(case, folder), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        started = []  # also what has left its group, as what `traceml run` starts
        with suppress(psutil.NoSuchProcess):
            started = psutil.Process(process.pid).children(recursive=True)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for each in started:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    if process.returncode and not case.exit_code:
        raise ValueError(f"exit code {process.returncode}\n{errors[-1500:]}")
    return output


@cache
def _version(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version('{package}'))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def judge_rival(case: Case, row: Mapping[str, Any]) -> tuple[Told, Judged | None]:
    """What a tool told, and its marks; None: it told nothing that can be judged."""
    if "told" not in row:
        return Told({}, row.get("failed") or row["not_applicable"], ()), None
    told = TOOLS[row["tool"]][2](case, row["told"])
    is_control = "control" in case.kinds
    if is_control and row["tool"] in LISTS_ROWS:
        return told, None
    judged = judge(case, told)
    false = judged.false
    if is_control:
        causes = (each.title for each in told.entries if each.is_sure and not each.gain)
        false += tuple(f"a cause where there is none: {title}" for title in causes)
    marks = judged.marks | {"cause": cause_of(case, judged.marks, [each.title for each in told.entries])}
    return told, Judged(marks, false, verdict_of(case, marks, false))


def cause_of(case: Case, marks: Mapping[str, Mark], titles: Sequence[str]) -> Mark:
    """The best of the truth's terms and of the place, the library or the part of the step that is named first."""
    if marks["cause"] is Mark.RIGHT or "control" in case.kinds:
        return marks["cause"]
    first = titles[0] if titles else ""
    if "input" in case.kinds and _INPUT.search(first):
        return Mark.RIGHT
    found = {marks["line"]} | ({marks["cause"], marks["owner"]} & {Mark.RIGHT, Mark.PARTLY})
    if marks["cause"] is Mark.WRONG:
        found = found & {Mark.RIGHT, Mark.PARTLY} | {Mark.WRONG}
    if first.startswith("RESIDUAL-HEAVY") and "input" not in case.kinds:
        found.add(Mark.PARTLY)
    return min(found, key=list(Mark).index)
