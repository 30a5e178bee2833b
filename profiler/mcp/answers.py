"""Keeps answers short, and makes their `next_step`: a tool with its arguments, an edit at a line, or a command."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Finding
from profiler.core.units import share
from profiler.diagnose.model import RunVerdict
from profiler.report.action_text import run_actions
from profiler.report.blocks import Action
from profiler.report.finding_text import finding_text
from profiler.report.model import has_no_steps
from profiler.report.next_step import next_step
from profiler.report.render.json import clean
from profiler.report.text import shortened
from profiler.run.model import Site

Answer = dict[str, Any]
MOST_TOKENS: Final = 2_000
"""Tokens of an answer, at most. An agent pays for each of them in all later calls."""
_BYTES_PER_TOKEN: Final = 3
"""A low estimate, so that the limit holds: English and JSON have about 4 bytes for each token."""
_MOST_TEXT: Final = 400
"""Characters of a text within an answer."""
_MOST_STEP: Final = 1_200
"""Characters of `next_step`, which may hold two command lines. Of four bytes each they still leave room."""


def tokens(answer: Mapping[str, Any]) -> int:
    """Estimate how many tokens an answer has, rather too many than too few."""
    return -(-len(text_of(answer).encode()) // _BYTES_PER_TOKEN)


def text_of(answer: Mapping[str, Any]) -> str:
    """Return an answer as the agent gets it."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def limited(answer: Answer) -> Answer:
    """Cut long texts and the ends of lists, until an answer has at most MOST_TOKENS; `left_out` counts what is gone."""
    step = shortened(str(answer.get("next_step", "")), _MOST_STEP)
    cut: Answer = _short({**clean(answer), "next_step": ""})
    left_out = Counter[str]()
    while tokens(whole := {**cut, **({"left_out": {**left_out}} if left_out else {}), "next_step": step}) > MOST_TOKENS:
        lists = [name for name, value in cut.items() if isinstance(value, list) and value]
        name = max(lists or cut, key=lambda each: len(text_of({each: cut[each]})))
        left_out[name] += 1
        if lists:
            cut[name] = cut[name][:-1]
        else:
            del cut[name]
    return whole


def _short(value: Any) -> Any:
    match value:
        case str():
            return shortened(value, _MOST_TEXT)
        case dict():
            return {key: _short(item) for key, item in value.items()}
        case list():
            return [_short(item) for item in value]
    return value


# ---------------------------------------------------------------- next steps


def call(tool: str, run: Path, **arguments: str) -> str:
    """`Call ledger {"run": "reports/runs/train", "line": "train.py:20"}`"""
    return f"Call {tool} {json.dumps({'run': str(run), **arguments}, ensure_ascii=False)}"


def run_step(analysis: Analysis, run: Path) -> str:
    """Return the first action of a run; where it has no cure and may be slow, the tool that shows its lines.

    The repair of a failed run is left out where more is known: an answer has the error beside its cures.
    """
    actions = run_actions(analysis, None)
    if analysis.info.state == "failed":
        actions = actions[1:] if analysis.lines else actions
    is_fine = analysis.outcome in (RunVerdict.COMPUTING, RunVerdict.DEVICE_BUSY) and analysis.info.state != "failed"
    if actions and (is_fine or not actions[0].command or not analysis.lines):
        return next_step(actions)
    return call("lines", run)


def line_step(analysis: Analysis, site: Site) -> str:
    """Return the cure of the finding that names a line; empty: no finding with a cure does."""
    for finding in analysis.findings:
        text = finding_text(finding)
        if text.fix and any(each.place == site.place for each in lines_of(finding)):
            return next_step((Action(text.fix, code=text.code, lines=(place(site),)), *_measure(analysis)))
    return ""


def read_step(analysis: Analysis, where: str, part: float) -> str:
    """Return the line to read where no rule knows a cure.

    :param part: its share of a step, or of a run without steps.
    """
    of = "the run" if has_no_steps(analysis) else "each step"
    title = f"Read {where}, which takes {share(part)} of {of}"
    advice = "no rule knows a cure, so see whether its work can be left out"
    return next_step((Action(title, advice), *_measure(analysis)))


def _measure(analysis: Analysis) -> Sequence[Action]:
    """Return the action that measures what an edit gave: the last one of a run, without steps its recording."""
    last = [each for each in run_actions(analysis, None) if each.command][-1:]
    return [replace(each, title="Record it again") for each in last] if has_no_steps(analysis) else last


def lines_of(finding: Finding) -> tuple[Site, ...]:
    """Return the lines that a finding names, the one to change first."""
    return ((finding.cure_site,) if finding.cure_site else ()) + finding.sites


def place(site: Site) -> str:
    """`train.py:20`, as the run names the file."""
    return f"{site.file}:{site.line}"
