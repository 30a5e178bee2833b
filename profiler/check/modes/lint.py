"""`lint`: findings of the rules that need no clock, about a few steps that are counted exactly."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from profiler.analyse.finding import RuleText
from profiler.check.counters.operators import GROWTH
from profiler.check.counters.paths import root_folder
from profiler.check.model import CANDIDATE, PATIENCE_S, Change, Counted, LintFinding, LintResult
from profiler.check.modes.causes import copied_bytes, rule_of_line
from profiler.check.modes.sides import load_recordings
from profiler.check.speed.controlled_process import Program
from profiler.check.speed.counting import record_steps

STEPS: Final = 8
"""Steps that are counted: a line that counts something in each of them does so in every step."""
WARMUP: Final = 2
"""Steps before them, in which memory is allocated and code is compiled."""
IGNORE: Final = "profiler: ignore"
"""A comment with this text keeps its line from being reported."""
_EVERY_STEP: Final = 1.0
"""Events per step from which a line is reported: what it does now and then, such as logging, is no fault."""
_COPY: Final = ("pageable", "pinned")
"""End of the operation of a wait that is a copy."""


def lint(
    argv: Sequence[str],
    *,
    virtual_cuda: str,
    steps: int = STEPS,
    ignore: Sequence[str] = (),
    patience: float = PATIENCE_S,
) -> LintResult:
    """Run a program until it has taken some steps, and judge what its lines did in them.

    :param virtual_cuda: number and name of the CUDA devices that it sees, as in `1:h100`; empty: none.
    :param ignore: names of rules that are left out.
    :raises ProfilerError: it fails, or takes too few steps.
    """
    program = Program(CANDIDATE, tuple(argv), Path.cwd(), virtual_cuda=virtual_cuda, count=True)
    program.executable()
    with tempfile.TemporaryDirectory(prefix="profiler-lint-") as folder:
        paths = record_steps(program, Path(folder), ["lint"], steps=steps, warmup=WARMUP, patience=patience)
        recordings = load_recordings(paths, str(program.cwd))
    root = root_folder(str(program.cwd), recordings.runs[0].info.argv)
    counted = recordings.counted[0]
    findings = (each for each in find(counted, source_of(root)) if each.rule not in ignore)
    totals = counted.totals
    uses_device = any(totals.get(name) for name in ("syncs", "h2d", "d2h"))
    return LintResult(tuple(findings), counted.steps, totals.get("syncs", 0.0) / counted.steps, uses_device)


def source_of(root: str) -> Callable[[str, int], str]:
    """A function that reads a line of a file below `root`; empty where there is none."""
    files: dict[str, list[str]] = {}

    def read(file: str, line: int) -> str:
        if file not in files:
            try:
                files[file] = (Path(root) / file).read_text(encoding="utf-8", errors="replace").splitlines()
            except (OSError, ValueError):
                files[file] = []
        return files[file][line - 1].strip() if 0 < line <= len(files[file]) else ""

    return read


def find(counted: Counted, source: Callable[[str, int], str]) -> Iterator[LintFinding]:
    """The findings about what the lines of a process count in each step, by file and line.

    :param source: the text of a line of a file.
    """
    from profiler.diagnose.rules.made_on_host import PLUGIN as MADE_ON_HOST
    from profiler.diagnose.rules.made_on_host import filled_on_device
    from profiler.diagnose.rules.memory_creep import PLUGIN as MEMORY_CREEP
    from profiler.diagnose.rules.pageable_copies import PLUGIN as PAGEABLE_COPIES

    changes = list(_lines(counted, source))
    copied = copied_bytes(changes)
    seen: set[tuple[str, str, int]] = set()
    for change in sorted(changes, key=lambda each: (each.file, each.line, each.counter)):
        rule: RuleText | None = None
        instead = ""
        if change.counter == GROWTH:
            if (change.file, change.line) in counted.growing:
                rule, instead = MEMORY_CREEP, MEMORY_CREEP.code
        elif change.after < _EVERY_STEP and change.counter not in ("graph_breaks", "recompilations"):
            continue
        elif change.counter == "h2d":
            rule = rule_of_line(change, copied)
            filled = filled_on_device(change.source)
            if filled is not None:
                rule, instead = MADE_ON_HOST, filled
            elif rule is None and change.operation.endswith("pageable"):
                rule, instead = PAGEABLE_COPIES, "batch.pin_memory().to(device, non_blocking=True)"
        elif change.counter != "syncs" or not _is_copy_to_device(change, copied):
            rule = rule_of_line(change, copied)
        if rule is None or IGNORE in change.source or (key := (rule.name, change.file, change.line)) in seen:
            continue
        seen.add(key)
        code = "" if "{" in rule.code else rule.code
        yield LintFinding(rule.name, rule.title, change, rule.fix, instead or code)


def _lines(counted: Counted, source: Callable[[str, int], str]) -> Iterator[Change]:
    """Each line of the program with what it counts per step."""
    for (counter, file, function, operation), lines in counted.lines.items():
        for number, amount, text in lines:
            whole = source(file, number) or text
            yield Change(counter, file, number, function, operation, 0.0, amount / counted.steps, whole)


def _is_copy_to_device(change: Change, copied: object) -> bool:
    """Whether a wait is that of a copy to the device, which is a finding of its own."""
    place = change.file, change.line, change.function
    return change.operation.endswith(_COPY) and isinstance(copied, dict) and place in copied
