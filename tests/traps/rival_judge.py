"""Judges what another tool told about a case, by the criteria at the head of reports/accuracy/rivals.md."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.traps.cases import SCRIPTS, Case
from tests.traps.rival_tools import Telling

INPUT: Final = frozenset(
    {"no-workers", "slow-dataset-item", "slow-collate", "too-few-workers", "needless-workers", "workers-started-anew"}
    | {"starved-prefetch", "inline-input", "inline-tokenization", "slow-batch-transfer", "per-element-reads"}
    | {"io-bound-input"}
)
RESIDUAL: Final = frozenset(
    {"logging-in-loop", "synchronous-checkpoint", "frequent-evaluation", "periodic-work", "python-loop"}
    | {"garbage-collection", "blocked-thread", "thread-holds-gil", "work-after-update"}
)
CATEGORIES: Final = {"INPUT_BOUND": INPUT, "H2D_BOUND": frozenset[str](), "RESIDUAL_HEAVY": RESIDUAL}
"""TraceML's kind of verdict -> the rules whose cause its text for this kind names or includes."""
ROWS: Final = {
    "garbage-collection": ("gc.collect", "function collect"),
    "blocked-thread": ("function sleep",),
    "synchronous-checkpoint": ("save",),
    "logging-in-loop": ("logging",),
    **dict.fromkeys(sorted(INPUT), ("enumerate(DataLoader)", "function sleep")),
}
"""Rule -> words of which one must be in the name of a row of torch.profiler that names its cause."""
_GAIN: Final = re.compile(r"\d\s*[x×](?!\w)|speed-?up|times (as fast|faster)")


@dataclass(frozen=True, slots=True)
class RivalJudgement:
    """What a tool told rightly; None: it makes no such statement, or there is nothing to tell."""

    has_cause: bool | None
    """Ill: it names the cause. Healthy: it names none; None where the tool never says that a program is healthy."""
    has_line: bool | None
    """Its three first rows name a line at fault."""
    has_gain: bool
    """It gives a number for what a cure is worth."""


def judge_rival(case: Case, telling: Telling) -> RivalJudgement:
    """Judge a telling about a case."""
    has_gain = bool(_GAIN.search(telling.quote))
    if not case.ill:
        return RivalJudgement(telling.kind not in CATEGORIES if telling.kind else None, None, has_gain)
    lines, functions = case.lines(), functions_at_fault(case)
    at_fault = [bool(lines & set(row.lines) or functions & set(row.functions[:1])) for row in telling.rows]
    if telling.kind:
        has_cause = bool(set(case.rules) & CATEGORIES.get(telling.kind, frozenset()))
    else:
        words = [word for rule in case.rules for word in ROWS.get(rule, ())]
        has_cause = at_fault[:1] == [True] or any(word in row.name for row in telling.rows[:1] for word in words)
    return RivalJudgement(has_cause, any(at_fault) if lines else None, has_gain)


def functions_at_fault(case: Case) -> set[str]:
    """The names of the functions around the lines at fault, the innermost of each; a module is none."""
    path = SCRIPTS / case.script
    functions = [node for node in ast.walk(_parsed(path)) if isinstance(node, ast.FunctionDef)]
    names = set()
    for line in case.lines():
        around = [node for node in functions if node.lineno <= line <= (node.end_lineno or node.lineno)]
        names |= {max(around, key=lambda node: node.lineno).name} if around else set()
    return names


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
