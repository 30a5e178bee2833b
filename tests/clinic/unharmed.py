"""Compares a recorded program with the bare one: it prints the same lines and ends alike, and its steps are found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from tests.clinic.case import Case
from tests.clinic.program import Ended

_RUNTIME: Final = re.compile(r"'(train_runtime|train_\w+_per_second)': '?[\d.]+'?")
_PROGRESS: Final = re.compile(r"\d%\||\dit/s|s/it")
_WARNING: Final = re.compile(r"^\S+:#: (\w*Warning: .*)")
"""A warning of torch names the Python line that called it, which is ours where a hook wraps the call."""
_NUMBER: Final = re.compile(r"\b(0x[0-9a-f]+|\d+)")


def harm(case: Case, run_directory: Path, recorded: Ended, bare: Ended) -> Iterator[str]:
    """What the recording changed, and what it lacks."""
    from profiler.report.text import step_text
    from profiler.run.load import load

    style, run = case.truth.style, load(run_directory)
    assert style is not None
    if (run.info.exit_code, bare.exit_code) != (case.exit_code, case.exit_code):
        yield f"exit code {run.info.exit_code}, alone {bare.exit_code}, not {case.exit_code}\n{bare.errors[-1000:]}"
    output, alone = _lines(recorded.output + recorded.errors.partition("\nrecorded ")[0]), _lines(bare.output)
    if not alone or [line for line in output if line in set(alone)] != alone:
        yield "the lines of its output differ"
    if differing := shapes(output) ^ shapes((*alone, *_lines(bare.errors))):
        yield f"lines that were added or lost: {sorted(differing)}"
    steps = np.unique(run.steps["pid"], return_counts=True)[1].tolist()
    if steps != [style.recorded] * (case.processes or case.ranks):
        yield f"steps {steps}, not {style.recorded}"
    if style.source not in step_text(run.step):
        yield f"{step_text(run.step)}, not {style.source}"
    states = {status.name: status.state for status in run.info.collectors}
    is_light = case.level == "light"
    right = ("ok", "off" if is_light else "ok")
    if (states["hooks"], states.get("stacks", "off")) != right or "failed" in states.values() or run.problems:
        yield f"collectors {states}, problems {run.problems}"
    if run.info.facts["device"] != "cpu" or not run.info.facts["torch"]:
        yield f"facts {run.info.facts}"
    regions = {run.names[number] for number in run.regions["name"].tolist()}
    if not regions.issuperset(style.regions) or (is_light and regions):
        yield f"regions {sorted(regions)}"


def shapes(lines: Iterable[str]) -> set[str]:
    """The lines with every number as #, without progress bars; warnings without their location."""
    result, in_warning = set(), False
    for line in lines:
        text = _NUMBER.sub("#", line)
        warning = _WARNING.match(text)
        if not (in_warning and text.startswith("  ")) and not _PROGRESS.search(line):
            result.add(warning[1] if warning else text)
        in_warning = warning is not None or (
            in_warning and not text.startswith("  ")
        )  # a message may have several lines
    return result


def _lines(text: str) -> list[str]:
    return [_RUNTIME.sub(r"'\1': ...", line) for line in text.splitlines() if line.strip()]
