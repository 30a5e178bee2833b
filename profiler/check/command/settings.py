"""What `check` was asked for: the command line over `[tool.profiler.check]` over the tool's own choice."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profiler.check.command.asked import COMMANDS, RUNS_OF
from profiler.check.limits import read
from profiler.check.model import Limits
from profiler.check.speed.controlled_process import PATIENCE_S
from profiler.core.directories import refusal
from profiler.core.errors import ProfilerError

RUNS: Final = Path("reports") / "runs"
PROCESSES: Final = 2
"""That are counted: what differs between them is no constant."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Everything settled."""

    limits: Limits
    out: Path
    baseline: Path | None = None
    history: Path | None = None
    update: bool = False
    reason: str = ""
    steps: int | None = None
    warmup: int | None = None
    """None: the tool chooses."""
    processes: int = PROCESSES
    patience: float = PATIENCE_S
    links: tuple[str, ...] = ()
    environment: str = "auto"
    github: bool = False
    explain: bool = True
    """Whether a slow-down that fails is looked into: where the time of both sides goes."""
    named: frozenset[str] = frozenset()
    """Counters that --limit and --ignore name: the others are named in pyproject.toml."""
    notes: tuple[str, ...] = ()
    """What a reader of the result has to know of it."""
    began: float = field(default_factory=time.monotonic)


def settings_of(args: argparse.Namespace, mode: str) -> GateSettings:
    """:raises ProfilerError: a value or a key that there is not, or a directory that is taken."""
    limits = _limits(args.limit)
    overrides = {
        "detect": args.detect,
        "inconclusive": args.inconclusive,
        "baseline": None if args.baseline is None else str(args.baseline),
        "steps": args.steps,
        "warmup": args.warmup,
        "max_rounds": args.max_rounds,
        "max_seconds": args.max_seconds,
        "links": args.link,
        "limits": limits,
        "ignore": args.ignore,
    }
    said = read(None, overrides)
    if args.patience is not None and not 0 < args.patience < float("inf"):
        raise ProfilerError(f"--patience {args.patience}: must be above 0")
    used = said.baseline
    notes: tuple[str, ...] = ()
    if used is not None and (mode in (COMMANDS, RUNS_OF) or args.no_baseline):
        notes = (f"{used}, the baseline that {said.file} names, was not used: {_why_unused(mode)}.",)
        used = None
    return GateSettings(
        limits=said.limits,
        out=_out(args.out),
        baseline=used,
        history=args.history,
        update=args.update,
        reason=args.reason or "",
        steps=said.steps,
        warmup=said.warmup,
        processes=said.processes or PROCESSES,
        patience=args.patience or PATIENCE_S,
        links=said.links,
        environment=args.environment or "auto",
        github=args.github,
        explain=not args.no_explain,
        named=frozenset((*(limits or ()), *(args.ignore or ()))),
        notes=notes,
    )


def _why_unused(mode: str) -> str:
    if mode in (COMMANDS, RUNS_OF):
        return f"{mode} are held against each other"
    return "--no-baseline"


def _limits(given: list[str] | None) -> dict[str, str] | None:
    """:raises ProfilerError: one of them has no amount."""
    if given is None:
        return None
    pairs = [text.partition("=") for text in given]
    if bad := next((name for name, sign, amount in pairs if not (name and sign and amount)), None):
        raise ProfilerError(f"--limit {bad}: name a counter and how far it may rise, as in syncs=1 or h2d_bytes=1%")
    return {name: amount for name, _, amount in pairs}


def _out(asked: Path | None) -> Path:
    """Made with the first run in it, so that a refusal leaves nothing."""
    from profiler.run.store import default_directory
    from profiler.run.tables import MANIFEST

    out = asked or default_directory(("check",), RUNS)
    if why := refusal(out, MANIFEST):
        raise ProfilerError(why)
    return out
