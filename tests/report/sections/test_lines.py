"""The lines of the program's own code in tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.host import LineCost
from profiler.report.blocks import Table
from profiler.report.sections import lines
from profiler.run.model import Site
from tests.report import samples


@pytest.mark.parametrize(("calls", "note"), [("", ""), ("torch.Tensor.backward", "in Tensor.backward")])
def test_a_line_says_what_it_calls_only_where_it_calls_something(calls: str, note: str) -> None:
    """`the line itself` stood in every row."""
    line = LineCost(Site("train.py", 9, "train"), calls, 0.01, 0.5, 0.4, 0.6, 80, {"python": 0.01})
    section = samples.build_section(lines.lines, replace(samples.analysis(), lines=(line,)))
    assert section is not None
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    assert [(cell.text, cell.note) for cell in table.rows[0][-1:]] == [("Python", note)]
    assert not any("the line itself" in cell.one_line() for row in table.rows for cell in row)
