"""Made-up lists of fixes, as a trainer prints them, and ladders of made-up runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from profiler.analyse.comparability import SideRuns
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.measures import Measure
from profiler.run.model import RunInfo
from reference_trainer.report.ladder import Ladder, measure_ladder
from reference_trainer.report.ladder_plan import FixList, LadderPlan, plan_ladder, read_fixes


def fix(name: str, *, kind: str = "cure", **changes: Any) -> dict[str, Any]:
    """One entry of the list."""
    entry = {"name": name, "removes": f"cost of {name}", "rule": f"rule-{name}", "rule_left_out": f"rule-{name}"}
    entry |= {"requires": [], "excludes": []}
    return {**entry, "kind": kind, "available": True, "why_not": "", **changes}


def program(label: str, kind: str, **changes: Any) -> dict[str, Any]:
    """One entry of the programs beside the fixes."""
    return {"label": label, "kind": kind, "what": f"it is {label}", "arguments": ["--variant", label], **changes}


def document(**changes: Any) -> dict[str, Any]:
    """Five fixes of which two stand on others, an alternative, other work, another program; two cannot run here."""
    fixes = [
        fix("batch"),
        fix("parallel", requires=["batch"]),
        fix("shards", kind="instead", excludes=["batch"]),
        fix("async"),
        fix("embed", requires=["async"]),
        fix("prefetch", requires=["embed"]),
        fix("graph", kind="on top", available=False, why_not="no CUDA here", requires=["embed"]),
        fix("learn", kind="work", excludes=["prefetch"]),
    ]
    full = ["batch", "parallel", "async", "embed", "prefetch"]
    programs = [program("bf16", "precision", why_not="emulated here"), program("plain", "beside")]
    base = {"device": "host", "fixes": fixes, "fixed": full, "programs": programs}
    return base | changes


def fix_list(**changes: Any) -> FixList:
    """`document` as it is read."""
    return read_fixes(json.dumps(document(**changes)))


def light_run(tokens_per_s: float, **facts: Any) -> Analysis:
    """A light run of that speed."""
    info = RunInfo(1, "r", "", ("t.py",), facts={"device": "host", "work": "forward", **facts})
    step = Measure("step_time", 3000 / tokens_per_s, "s")
    return Analysis(
        info, {"tokens_per_s": Measure("tokens_per_s", tokens_per_s, "tokens/s"), "step_time": step}, {}, {}
    )


def speeds(plan: LadderPlan, gains: Mapping[str, float], rounds: int = 3) -> dict[str, SideRuns]:
    """Runs of every program: a fix multiplies the speed of 1,000 tokens/s by its gain; a round moves all alike."""
    programs = {}
    for number, program in enumerate(plan.programs):
        speed = 1000.0
        for name in program.fixes:
            speed *= gains.get(name, 1.0)
        facts = {"work": "learn"} if "learn" in program.fixes else {}
        runs = [speed * (1 + turn) * (1 + 0.001 * ((number + turn) % 3)) for turn in range(rounds)]
        programs[program.label] = SideRuns(program.label, "", tuple(light_run(run, **facts) for run in runs), None)
    return programs


def made_up(gains: Mapping[str, float], *, rounds: int = 3, interrupted: bool = False, **changes: Any) -> Ladder:
    """A ladder of `document(**changes)` in which each fix has its gain."""
    plan = plan_ladder(fix_list(**changes))
    return measure_ladder(plan.rows, speeds(plan, gains, rounds), unavailable=plan.unavailable, interrupted=interrupted)
