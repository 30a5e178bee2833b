"""The section of long steps where no line explains them. tests/approval holds one with a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler.report.blocks import Table
from profiler.report.sections.throughput import long_steps
from tests.report import hook_samples, samples


def table(**changes: Any) -> Table:
    spikes = replace(hook_samples.SPIKES, lines=(), **changes)
    section = samples.build_section(long_steps, replace(samples.analysis(), spikes=spikes))
    return next(block for block in section.blocks if isinstance(block, Table))


def test_without_a_line_it_says_why() -> None:
    machine = table(every=0)
    assert machine.rows[0][2].text == "irregularly"
    assert "no line stands out in the long steps: the machine" in machine.note
    few = table(samples=3, enough=False)
    assert "3 stack samples in long steps: too few" in few.note
