"""Writes reports/traces/README.md: every verdict on the public GPU traces, with events that show it, and a judgement.

    python -m tests.gpu_traces

The traces are read from the folder PROFILER_TRACES (default: ../shared/traces).
"""

from __future__ import annotations

import json
import math
import sys
import tomllib
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from profiler import analyse_run, load
from profiler.analyse.analysis import analyse
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Cure, Finding, GainMethod
from profiler.analyse.window import rank_windows
from profiler.core.units import ratio, share
from profiler.report.finding_text import finding_text
from profiler.run.model import Run
from tests.fakes.programs import ROOT
from tests.gpu_traces.events import RawTrace, short, table
from tests.run.ingest.test_real_traces import FILES, TRACES

PAGE: Final = ROOT / "reports/traces/README.md"
JUDGEMENTS: Final[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "judgements.toml").read_text())
PAIRS: Final = (
    ("kineto_resnet50_nw0_v100", "kineto_resnet50_nw4_v100", Cure("input"), "no-workers"),
    ("torchbench_copy_pageable_a100", "torchbench_copy_pinned_a100", Cure("copies", word="pinned"), "pageable-copies"),
)
"""Two traces of one program, without and with a cure; the change that stands for it, and the rule that names it."""
_BAR: Final = 0.03
"""Largest relative error of a replay without any change."""
_HEAD: Final = """# Verdicts on public GPU traces

`python -m tests.gpu_traces` writes this page from the traces in the folder `PROFILER_TRACES`, which are not part of
this project; their sources and licences are listed with each. For every trace it has the verdict and the findings, then
events of the trace that show whether they are true, and a judgement that was written after reading these events.

The events come from a reader of its own (`tests/gpu_traces/events.py`), which uses the standard library and nothing of
the profiler. To check one, open the trace in Perfetto or a text editor and search the time stamp: `ts` is the number in
the file, in µs. Shares are of the *window*: from the first annotated step to the last, or all of a trace without steps.
"""


def main() -> int:
    if not FILES:
        print(f"there are no traces in {TRACES}: set PROFILER_TRACES", file=sys.stderr)
        return 2
    sections, replays, runs = [], [], {}
    for file in FILES:
        name = file.name.removesuffix(".json.gz")
        run = load(file)
        runs[name] = run
        analysis, replayed = analyse_run(run), analyse(run)
        sections.append(_section(name, file, analysis))
        replays.append(_replay_row(name, replayed))
        print(name, file=sys.stderr)
    judged = [JUDGEMENTS[file.name.removesuffix(".json.gz")]["verdict"] for file in FILES]
    counts = ", ".join(f"{judged.count(word)} {word}" for word in ("right", "partly", "wrong"))
    head = ["trace", "waits", "unchanged", "without delays", "unexplained", "steady"]
    parts = [
        _HEAD,
        f"Verdicts: {counts}, of {len(FILES)}.\n",
        _UNREAD,
        "## Replay\n",
        _REPLAY,
        table([head, *replays]) + "\n",
        _within(replays) + "\n",
        _PAIRS,
        _pairs(runs) + "\n",
        "## Traces\n",
        *sections,
    ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(parts).rstrip() + "\n")
    print(PAGE)
    return 0


_UNREAD: Final = (
    "Two more of the public recordings are of Nsight Systems (`nsys_fuser_h200`, `nsys_mfu_2gpu_before`), which are "
    "not read yet: no verdict.\n"
)
_REPLAY: Final = """Each trace is simulated without any change.

- *Unchanged*: the step by the replay, divided by the measured step. Delays of activities that nothing in the trace
  explains are part of it, so it is 1 where the rest is right.
- *Without delays*: the same without them, which is the harder test. Only the host's own work, the durations of
  activities, and what waits for what make the step.
- *Unexplained*: these delays as a share of the window; on several queues it may be more than they cost.
- *Waits*: how often the host waits in the window.
- *Steady*: a step of steps that follow each other, divided by the measured one. Above 1, the host was ahead of the
  device when the recording ended.
"""
_PAIRS: Final = """Two traces of one program, without and with a cure: the measured gain, by the median step and by all
steps, beside what is predicted from the first trace alone. *Error* is |ln(predicted / measured)|, by the median step.
*Plain Amdahl* takes away all of the time that the host spends in the part, busy device or not.
"""


def _within(rows: list[list[str]]) -> str:
    """How many traces the replay gives back within the bar."""
    replayed = [(float(row[2]), float(row[3])) for row in rows if row[3]]
    unchanged, without = (sum(abs(value - 1) <= _BAR for value in each) for each in zip(*replayed, strict=True))
    return (
        f"Within {_BAR:.0%} of the measured step: unchanged {unchanged} of {len(replayed)} traces, without delays "
        f"{without}."
    )


def _replay_row(name: str, analysis: Analysis) -> list[str]:
    replay: Any = analysis.replay
    if replay is None:
        return [name, "", "no device", "", "", ""]
    prediction = replay.predict(())
    waits = int(replay.timeline.waiting.sum())
    return [
        name,
        f"{waits}",
        f"{replay.replayed / replay.measured:.4f}",
        f"{replay.explained / replay.measured:.3f}",
        f"{replay.unexplained:.3f}",
        f"{prediction.before / replay.measured:.3f}",
    ]


def _pairs(runs: dict[str, Run]) -> str:
    rows = [["without", "with", "change", "measured, median", "measured, all", "replay", "bound", "plain Amdahl"]]
    errors: dict[str, list[float]] = {"replay": [], "bound": [], "plain Amdahl": [], "no gain": []}
    for slow, fast, cure, rule in PAIRS:
        walls = [rank_windows(runs[name])[0].wall / 1e9 for name in (slow, fast)]
        by_median, by_mean = (float(each(walls[0]) / each(walls[1])) for each in (np.median, np.mean))
        analysis = analyse(runs[slow])
        replay: Any = analysis.replay
        finding = next((each for each in analyse_run(runs[slow]).findings if each.rule.name == rule), None)
        bound = (
            next((gain.factor for gain in finding.gains if gain.method is not GainMethod.REPLAY), 1.0)
            if finding
            else 1.0
        )
        predicted = {
            "replay": replay.predict((cure,)).factor,
            "bound": bound,
            "plain Amdahl": _amdahl(analysis, cure),
            "no gain": 1.0,
        }
        for way, factor in predicted.items():
            errors[way].append(abs(math.log(factor / by_median)))
        cells = [
            f"{ratio(predicted[way])} (error {errors[way][-1]:.2f})" for way in ("replay", "bound", "plain Amdahl")
        ]
        rows.append([slow, fast, str(cure), ratio(by_median), ratio(by_mean), *cells])
    ends = "; ".join(f"{way} {median(each):.2f}, largest {max(each):.2f}" for way, each in errors.items())
    return f"{table(rows)}\n\nMedian error of {len(PAIRS)} pairs: {ends}."


def _amdahl(analysis: Analysis, cure: Cure) -> float:
    """The step without all of the host's time in a category, or without its waits for copies."""
    step = analysis.value("step_time") or 1.0
    name = "sync" if cure.name == "copies" else cure.name
    measure = analysis.breakdown.get(name)
    return step / max(step - (measure.value or 0.0 if measure else 0.0), 1e-3 * step)


# ---------------------------------------------------------------- one trace


def _section(name: str, file: Path, analysis: Analysis) -> str:
    truth = json.loads((TRACES / "truth" / f"{name}.json").read_text())
    source, judgement = truth["source"], JUDGEMENTS[name]
    devices, labels = ", ".join(dict.fromkeys(truth["devices"])) or "device not named", ", ".join(truth["labels"])
    findings = [_finding(each) for each in analysis.findings] or ["none"]
    return "\n".join(
        [
            f"### {name}\n",
            f"{devices}; {source['repo']} ({source['licence']}), `{source['path']}`; labels: {labels}.\n",
            f"> {analysis.verdict}\n",
            f"Findings: {'; '.join(findings)}.\n",
            "Events:\n",
            *(f"- {line}" for line in _evidence(RawTrace(file), judgement.get("idle", []))),
            f"\n**{judgement['verdict'].capitalize()}.** {judgement['argument']}\n",
        ]
    )


def _finding(finding: Finding) -> str:
    gains = ", ".join(f"{gain.method.value} {ratio(gain.factor)}" for gain in finding.gains)
    return (
        f"`{finding.rule.name}` {share(finding.share)} ({gains or 'no gain predicted'}): {finding_text(finding).title}"
    )


def _evidence(raw: RawTrace, patterns: list[list[str]]) -> list[str]:
    lines = [f"window {raw.window_ms:.3f} ms, {len(raw.steps)} annotated steps"]
    if not raw.device:
        events = sorted((each for each in raw.host if each.category == "cpu_op"), key=lambda each: each.begin)
        total = sum(each.ms for each in events)
        return [*lines, f"no activity of a device; {len(events)} operators, {total:.3f} ms in all"]
    kernels, typical = raw.kernels()
    lines.append(
        f"device busy {share(raw.busy())}, computing {share(raw.busy(computing=True))}; "
        f"{kernels} kernels, median {typical:.1f} µs; {raw.launches()} launch calls"
    )
    lines += [f"most time on the device: {_total(each)}" for each in raw.totals()]
    for begin, end in raw.gaps():
        covered = raw.host_during(begin, end)
        meanwhile = (
            f"; meanwhile {covered[0]}, which covers {share(covered[1])} of it" if covered else "; no host event"
        )
        lines.append(f"idle {float(end - begin) / 1000:.3f} ms from ts {_decimal(begin)}{meanwhile}")
    lines += [f"the host waits longest in {each}" for each in raw.waits()]
    for what, pattern in (
        *map(tuple, patterns),
        ("the loader", r"^enumerate\(DataLoader\)"),
        ("operators", "::"),
        ("free calls", "Free$"),
    ):
        if (idle := raw.idle_during(pattern)) >= 0.01:
            lines.append(f"idle while {what} ran ({pattern.strip('^$')}): {share(idle)}")
    if communication := raw.communication():
        lines.append(
            f"communication: {len(communication)} kernels, the longest {max(communication, key=lambda e: e.ms)}"
        )
    return lines


def _total(total: tuple[str, int, float]) -> str:
    return f"`{short(total[0])}`: {total[1]} times, {total[2]:.3f} ms"


def _decimal(value: Any) -> str:
    return f"{float(value):.3f}" if value.denominator != 1 else str(value.numerator)


if __name__ == "__main__":
    sys.exit(main())
