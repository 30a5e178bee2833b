"""Runs a case under TraceML, Scalene or torch.profiler as their documentation tells, and reads what each one tells."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MODELS: Final = {
    "trainer.py": "self.model", "plain.py": "net", "healthy.py": "model", "input.py": "net", "model.py": "model",
    "ranks.py": "model", "exchange.py": "model", "recurrent.py": "model", "workers.py": "model",
    "ppo.py": "agent", "restarted.py": "net", "sampled.py": "net", "copies.py": "net",
    "hooked.py": "net", "gan.py": "discriminator", "watched.py": "net",
}  # fmt: skip
"""Script -> the expression of its model, which TraceML's `trace_step` needs."""
PROFILED_STEPS: Final = 6
"""Steps that torch.profiler records, among them the 20th, in which the scripts do what they do every tenth step. With
20 steps, its table took more than 150 s for scripts with many calls of Python functions."""
_PROFILER_SCRIPT: Final = Path(__file__).parent / "torch_profiler_script.py"
_SCALENE_SCRIPT: Final = Path(__file__).parent / "scalene_script.py"
_TRACEML_HEAD: Final = """
import traceml_ai as traceml
from torch.utils.data import DataLoader as _DataLoader
traceml.init(mode="auto")
def _fetched(batches):
    return batches if isinstance(batches, _DataLoader) else traceml.wrap_dataloader_fetch(batches)
"""

Run = Callable[[Sequence[str | Path]], str]
"""Runs a command and returns its standard output."""


@dataclass(frozen=True, slots=True)
class Row:
    """One of the three largest rows of a profile: a line, or a function or operator with its stack."""

    name: str
    share: float
    """Its share of what the profile counts."""
    lines: tuple[int, ...] = ()
    """Numbers of the lines of the script that it names."""
    functions: tuple[str, ...] = ()
    """Functions of the script that it names, the innermost first."""


@dataclass(frozen=True, slots=True)
class Telling:
    """What a tool told about a case."""

    quote: str
    """Its own words or first row, for a reader who checks the judgement."""
    kind: str = ""
    """The code of its verdict, where it gives one."""
    rows: tuple[Row, ...] = ()


def run_traceml(python: Path, script: Path, options: Sequence[str], folder: Path, run: Run) -> Telling:
    """TraceML: `traceml run` of a copy of the script with `init` and `trace_step` around the body of the loop."""
    copy = folder / script.name
    copy.write_text(with_trace_step(script.read_text(encoding="utf-8"), MODELS[script.name]), encoding="utf-8")
    run([python.parent / "traceml", "run", "--logs-dir", folder, "--run-name", "run", copy, "--args", *options])
    summary = json.loads((folder / "run" / "final_summary.json").read_text(encoding="utf-8"))
    return read_traceml(summary)


def read_traceml(summary: Mapping[str, Any]) -> Telling:
    """TraceML's verdict, its reason, and what it says to do."""
    verdict = summary["primary_diagnosis"]
    return Telling(f"{verdict['status']}: {verdict['summary']} {verdict['action']}", kind=verdict["kind"])


def with_trace_step(source: str, model: str) -> str:
    """A training script with what TraceML's quick start tells to add, around the innermost loop that updates."""
    tree = ast.parse(source)
    (loop,) = (node for node in ast.walk(tree) if isinstance(node, ast.For) and any(map(_is_update, node.body)))
    if not isinstance(loop.iter, ast.Call):  # batches that no DataLoader makes
        loop.iter = ast.Call(ast.Name("_fetched"), [loop.iter], [])
    context = ast.withitem(ast.parse(f"traceml.trace_step({model})", mode="eval").body)
    loop.body = [ast.With([context], loop.body)]
    start = 1 if ast.get_docstring(tree) else 0
    tree.body[start:start] = ast.parse(_TRACEML_HEAD).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_update(statement: ast.stmt) -> bool:
    """Whether a statement calls `optimizer.step()`."""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(attr="step"))):
            return True
    return False


def run_scalene(python: Path, script: Path, options: Sequence[str], folder: Path, run: Run) -> Telling:
    """Scalene: `scalene run --cpu-only`, its documented way to profile time alone, switched on after ten steps."""
    out = folder / "scalene.json"
    profile = [python.parent / "scalene", "run", "--cpu-only", "--off", "--program-path", script.parent, "-o", out]
    run([*profile, _SCALENE_SCRIPT, "---", script, *options])
    return read_scalene(json.loads(out.read_text(encoding="utf-8")), script)


def read_scalene(profile: Mapping[str, Any], script: Path) -> Telling:
    """The lines of the script with the largest share of the time."""
    lines = next((file["lines"] for name, file in profile["files"].items() if Path(name).name == script.name), [])
    columns = {"Python": "n_cpu_percent_python", "native": "n_cpu_percent_c", "system": "n_sys_percent"}
    top = sorted(lines, key=lambda line: -sum(line[column] for column in columns.values()))[:3]
    rows = tuple(
        Row(
            f"line {line['lineno']}: " + ", ".join(f"{name} {line[column]:.0f}%" for name, column in columns.items()),
            sum(line[column] for column in columns.values()) / 100,
            lines=(line["lineno"],),
        )
        for line in top
    )
    return Telling(rows[0].name if rows else "no line of the script", rows=rows)


def run_torch_profiler(python: Path, script: Path, options: Sequence[str], folder: Path, run: Run) -> Telling:
    """torch.profiler: the table of operators and functions by self CPU time, grouped by stack."""
    out = folder / "rows.json"
    run([python, _PROFILER_SCRIPT, str(PROFILED_STEPS), out, script, *options])
    return read_torch_profiler(json.loads(out.read_text(encoding="utf-8")), script)


def read_torch_profiler(rows: Sequence[Mapping[str, Any]], script: Path) -> Telling:
    """The rows with the largest self CPU time. A frame is `FILE(LINE): FUNCTION`; the line is that of its `def`."""
    read = []
    for row in rows:
        frames = [frame for frame in (row["name"], *row["stack"]) if f"{script.name}(" in frame]
        functions = [frame.rpartition(": ")[2] for frame in frames]
        names = tuple(function for function in functions if function != "<module>")
        read.append(Row(row["name"].rpartition("/")[2], row["share"], functions=names))
    first = read[0]
    where = f", under {first.functions[0]}() of {script.name}" if first.functions else ""
    return Telling(f"{first.name}: {first.share:.0%} of self CPU time{where}", rows=tuple(read))


TOOLS: Final = {"TraceML": run_traceml, "Scalene": run_scalene, "torch.profiler": run_torch_profiler}
PACKAGES: Final = {"TraceML": "traceml-ai", "Scalene": "scalene", "torch.profiler": "torch"}


def version(python: Path, tool: str) -> str:
    """The version of a tool in the environment of this Python; the error of the subprocess where it is missing."""
    code = f"from importlib.metadata import version; print(version('{PACKAGES[tool]}'))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
