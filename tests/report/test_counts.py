"""The screen of a run that was counted: what a usual step does, and what other steps do."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest
from rich.console import Console

from profiler.analyse.timing.counts import run_counts
from profiler.report.build import build_report
from profiler.report.render.console import print_report
from profiler.report.render.json import counts_json
from profiler.report.write import first_screen_html, rendered
from profiler.run.tables import CallKind
from tests.recorded.builders import MS, RunBuilder


def screen(
    numbers: Mapping[int, int], steps: int = 31, kind: CallKind = CallKind.SYNC, name: str = "item", **options: Any
) -> list[str]:
    """The screen of a run with so many calls in some of its steps, the first of which is step 0."""
    builder = RunBuilder(virtual_cuda=1)
    builder.steps(steps, 10 * MS)
    for step, number in numbers.items():
        for each in range(number):
            at = step * 10 * MS + each + 1
            builder.named_call(kind, name, at, at, site="train.py:7:main", **options)
    stream = io.StringIO()
    print_report(build_report(run_counts(builder.build())), console=Console(file=stream, width=120))
    return stream.getvalue().splitlines()


ALWAYS = dict.fromkeys(range(31), 1)


@pytest.mark.parametrize(
    ("numbers", "head", "line"),
    [
        ({}, "0 times in a step", None),
        (ALWAYS, "once in a step", "1  train.py:7: item"),
        (dict.fromkeys(range(31), 2), "2 times in a step", "2  train.py:7: item"),
        (
            {**ALWAYS, 14: 8},
            "once in a usual step; 7 more in one of 30 steps",
            "1  train.py:7: item, 7 more in one of 30 steps",
        ),
        (
            {**ALWAYS, 10: 3, 20: 3, 30: 3},
            "once in a usual step; 2 more in every 10th step",
            "1  train.py:7: item, 2 more in every 10th step",
        ),
        (
            {**ALWAYS, 10: 0, 20: 3, 30: 3},
            "once in a usual step; 0 to 3 in every 10th step",
            "1  train.py:7: item, 0 to 3 in every 10th step",
        ),
        (
            {9: 2},
            "0 times in a usual step; 2 times in the run",
            "0  train.py:7: 2 times in the run, item",
        ),
        (
            {9: 1},
            "0 times in a usual step; once in the run",
            "0  train.py:7: once in the run, item",
        ),
        (
            {10: 1, 20: 1, 30: 1},
            "0 times in a usual step; 1 in every 10th step",
            "0  train.py:7: 1 in every 10th step, item",
        ),
        ({0: 4}, "0 times in a step", "4  train.py:7: item, once at the start"),
    ],
)
def test_a_usual_step_and_the_others(numbers: Mapping[int, int], head: str, line: str | None) -> None:
    lines = screen(numbers)
    assert lines[1] == f"The host waits for the device {head}"
    if line is not None:
        assert lines[lines.index("Lines for which the host waits, in a step") + 1].strip().startswith(line)


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        (CallKind.H2D, "to pageable", ".to() from pageable memory, 8.00 B"),
        (CallKind.H2D, "to pinned non-blocking", ".to() from pinned memory without a wait, 8.00 B"),
        (CallKind.D2H, "__setitem__ pageable", "assignment into pageable memory, 8.00 B"),
        (CallKind.D2H, "save pageable", "torch.save() into pageable memory, 8.00 B"),
        (CallKind.D2D, "to", ".to(), 8.00 B"),
    ],
)
def test_a_copy_is_told_as_the_program_writes_it(kind: CallKind, name: str, text: str) -> None:
    assert any(line.endswith(f"1  train.py:7: {text}") for line in screen(ALWAYS, kind=kind, name=name, bytes=8))


def test_what_happens_at_the_start_is_told() -> None:
    lines = screen({0: 10}, kind=CallKind.H2D, name="to pageable", bytes=8)
    assert "  10  train.py:7: .to() from pageable memory, once at the start" in lines


def test_page_markdown_and_notebook_have_the_same_screen() -> None:
    builder = RunBuilder(virtual_cuda=1)
    builder.steps(3, 10 * MS)
    for step in range(3):
        builder.named_call(CallKind.SYNC, "item", step * 10 * MS + 1, step * 10 * MS + 1, site="train.py:7:main")
    counted = run_counts(builder.build())
    for text in (rendered(counted, "html"), rendered(counted, "md"), first_screen_html(counted)):
        words = " ".join(re.sub("<[^>]*>", "", unescape(text)).split())
        assert "The host waits for the device once in a step" in words
        assert "Lines for which the host waits, in a step" in words


def test_data_keep_their_keys() -> None:
    builder = RunBuilder(virtual_cuda=1)
    builder.steps(3, 10 * MS)
    builder.named_call(CallKind.SYNC, "item", 15 * MS, 15 * MS, site="train.py:7:main")
    (count,) = counts_json(run_counts(builder.build()))["counts"]
    assert (count["per_step"], count["before_second_step"]) == (0.5, 0)
    assert {"kind", "call", "waits", "file", "line", "function", "source", "usual", "usual_bytes"} <= set(count)
