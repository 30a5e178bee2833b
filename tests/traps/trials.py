"""Measures how true `try` is: the gain without the cause of a finding beside that of the real cure.

    python -m tests.traps.trials [CASE ...]

A case is recorded, the finding about its illness is tried as `try` does it, and the program with and without the
illness is measured in the same way, before and after the trial. Where no such finding can be tried, the first one that
can is. Results are written to a file; a second call goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from profiler import read
from profiler.analyse.finding import Confidence, Finding
from profiler.core.errors import ProfilerError
from profiler.core.plugins import discover
from profiler.knockout.plan import Plan, plan_trial
from profiler.knockout.session import prepare
from profiler.report.text import describe
from profiler.run.model import Site
from tests.traps.__main__ import _CALIBRATION, _ENVIRONMENT, RECORDED_S, read_rows, speed, write_rows
from tests.traps.cases import ROOT, SCRIPTS, Case, select
from tests.traps.real import ROUNDS, RealCure
from tests.traps.table import with_interval

RESULTS: Final = ROOT / "reports" / "accuracy" / "trials.jsonl"
WORTH: Final = 1.1
"""Real gain from which a case counts."""
_UPPER: Final = 0.05
"""By how much a trial may be below the real gain and still count as an upper bound, as with predictions."""
ONLY_REMOVES: Final = frozenset(
    (
        "python-loop", "many-small-operators", "thread-holds-gil", "garbage-collection", "blocked-thread",
        "logging-in-loop", "synchronous-checkpoint", "frequent-evaluation", "periodic-work", "debug-mode",
    )
)  # fmt: skip
"""Illnesses whose cure only removes work; the others do the same work in another way."""
_INSTEAD: Final = frozenset(("plain-many-small-operators",))
"""Cases of these illnesses whose cure does the same work in another way all the same."""


def try_finding(case: Case, folder: Path) -> dict[str, Any]:
    """Record a case, and try the finding about its illness, else the first one: another one has another cure."""
    steps = max(60, round(RECORDED_S * speed(case, _CALIBRATION)))
    run = folder / "run"
    record = [sys.executable, "-m", "profiler", "run", "--out", str(run), "--", *case.command(steps)]
    subprocess.run(record, check=True, cwd=ROOT, env=_ENVIRONMENT, capture_output=True)
    analysis = read(run)
    session = prepare(run, analysis)
    every = (*session.plans, *session.alternatives.values())
    right = tuple(plan for plan in every if plan.finding.rule.name in case.ill)
    session = replace(session, plans=(right or every)[:1], alternatives={})
    recorded_s = ((analysis.info.end or 0) - analysis.info.begin) / 1e9
    row: dict[str, Any] = {"recorded_s": round(recorded_s, 1), "rule": "", "measured": None, "reason": "no finding"}
    if session.not_tried:
        row["reason"] = session.not_tried[0][1].code
    if not session.plans and (given := _given_plan(case)) is not None:  # the recording was too noisy to diagnose
        row["is_given"] = True
        session = replace(session, plans=(given,))
    for trial in session.trials():
        row |= {
            "rule": trial.rule, "predicted": trial.predicted, "measured": trial.factor, "low": trial.low,
            "high": trial.high, "is_least": trial.is_least, "seconds": round(trial.seconds, 1), "rounds": trial.rounds,
            "skipped": [line.source for line in trial.skipped], "settings": dict(trial.settings),
            "reason": trial.reason.code if trial.reason else "",
            "text": describe(trial.reason),
        }  # fmt: skip
    return row


def _given_plan(case: Case) -> Plan | None:
    """The plan for a finding of the rule that is right, with the lines that are at fault."""
    rule = next(rule for rule in discover("profiler.diagnose.rules") if rule.name == case.ill[0])
    sites = tuple(Site(case.script, line, "") for line in sorted(case.lines())[:3])
    finding = Finding(rule, 0.0, 0.0, 0.0, 0.0, Confidence.LOW, sites)
    plan = plan_trial(finding, [SCRIPTS], time.time())
    return plan if isinstance(plan, Plan) else None


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of all results, and how far they are from the real cures."""
    lines = [
        "# What `try` measures, beside the real cures",
        "",
        "Written by `python -m tests.traps.trials`: each program is tried without what the finding about its illness",
        "blames, and measured with its illness switched off. Both are ratios of step times in alternating blocks,",
        "with intervals of 95%. Given: the recording was too noisy for a finding, and the right one was tried; it has",
        "no prediction.",
        "",
        "| case | tried | left out | predicted | measured | real | ln | seconds | recorded |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        what = "; ".join(row.get("skipped", [])) or json.dumps(row.get("settings", {}))
        predicted = "" if row.get("is_given") or not row.get("predicted") else f"{row['predicted']:.2f}"
        measured = with_interval(row["measured"], row["low"], row["high"]) if row["measured"] else row["reason"]
        cells = [
            row["case"],
            row["rule"] + " (given)" * row.get("is_given", False),
            f"`{what.partition('  #')[0][:70]}`",
            predicted,
            measured,
            with_interval(row["real"], row["real_low"], row["real_high"]),
            f"{math.log(row['measured'] / row['real']):+.2f}" if row["measured"] else "",
            f"{row.get('seconds', 0):.0f}",
            f"{row['recorded_s']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_summary(rows)]
    return "\n".join(lines) + "\n"


def only_removes(row: Mapping[str, Any]) -> bool:
    """Whether the real cure of a case leaves work out, and does nothing instead."""
    return row["ill"] in ONLY_REMOVES and row["case"] not in _INSTEAD


def _summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    counted = [row for row in rows if row["measured"] and row["real"] >= WORTH]
    lines = [
        f"Of {sum(row['real'] >= WORTH for row in rows)} with a real gain of 10% or more, {len(counted)} were measured."
    ]
    kinds = {
        "the cure only removes work": only_removes,
        "the cure does it in another way": lambda row: not only_removes(row),
    }
    for name, chosen in kinds.items():
        of_kind = [row for row in counted if chosen(row)]
        errors = [abs(math.log(row["measured"] / row["real"])) for row in of_kind]
        if len(errors) > 1:
            most = quantiles(errors, n=10, method="inclusive")[8]
            apart = sum(row["low"] > row["real_high"] or row["high"] < row["real_low"] for row in of_kind)
            lines.append(
                f"- Where {name} ({len(errors)}): median |ln| {median(errors):.2f}, P90 {most:.2f}; the intervals of "
                f"trial and real cure are apart in {apart}."
            )
    other = [row for row in counted if not only_removes(row)]
    if other:
        surely = sum(row["high"] >= row["real_low"] for row in other)
        alone = sum(row["measured"] >= (1 - _UPPER) * row["real"] for row in other)
        lines.append(
            f"- Where it does it in another way, the trial gives at least the real gain in {surely} of {len(other)} "
            f"within the intervals, and in {alone} by the figures alone, within {_UPPER:.0%}."
        )
    times = [row["seconds"] / row["recorded_s"] for row in counted]
    if times:
        lines.append(f"- Time of a trial: at most {max(times):.1f} times the recorded time.")
    return lines


def main() -> int:
    """Measure the chosen cases with one illness, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.traps.trials", description=__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases (default: all with one illness)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = {row["case"]: row for row in read_rows(arguments.results)}
    for case in select(arguments.cases):
        if len(case.ill) != 1 or (case.name in rows and not arguments.cases):
            continue
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                cure = RealCure(case, Path(folder))
                cure.measure(ROUNDS // 3)
                row = try_finding(case, Path(folder))
                cure.measure(ROUNDS)
                row |= cure.result()
            except ProfilerError as error:
                print(f"{case.name}: {error}", flush=True)
                continue
        row = json.loads(json.dumps(row).replace(f"{ROOT}/", ""))
        rows[case.name] = {"case": case.name, "ill": case.ill[0], **row}
        write_rows(arguments.results, rows.values())
        arguments.results.with_suffix(".md").write_text(page(list(rows.values())), encoding="utf-8")
        line = f"{row['rule']} {row['measured'] or row['reason']}, really {row['real']:.2f}"
        print(f"{case.name}: {line} ({time.monotonic() - begin:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
