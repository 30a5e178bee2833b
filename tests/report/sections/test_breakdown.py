"""Where the time of data loading goes: a function stands with its name and where it begins."""

from __future__ import annotations

from dataclasses import replace

import profiler
from profiler.analyse.model.input import InputPart
from profiler.report.blocks import Cell, Table
from profiler.report.build import build_report
from profiler.report.sections import breakdown
from profiler.run.model import Site
from tests.approval.cases import recording
from tests.report import samples


def _cells(*parts: InputPart) -> list[Cell]:
    analysis = replace(samples.analysis(), input=parts)
    section = samples.build_section(breakdown.input_time, analysis)
    assert section is not None
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    return [row[2] for row in table.rows]


def test_a_function_is_named_with_where_it_begins_and_not_as_the_line_that_takes_the_time() -> None:
    site = Site("/home/somebody/train.py", 9, "Points.__getitem__", "def __getitem__(self, index):")
    named, other = _cells(
        InputPart("dataset", "main process", 0.002, 0.4, site), InputPart("collate", "main process", 0.001, 0.2)
    )
    assert (named.text, named.note, named.title) == (
        "Points.__getitem__()",
        "begins at …/somebody/train.py:9",
        "/home/somebody/train.py:9",
    )
    assert not named.is_location
    assert not named.source
    assert other.text == "–"


def test_the_verdict_says_that_a_line_of_data_loading_is_where_its_function_begins() -> None:
    """Of real runs: every line that the table of data loading shows is the first one of a function, so that no line of
    the first screen contradicts it."""
    seen = 0
    for name in ("slow-input", "workers", "iterable"):
        analysis = profiler.read(recording(name))
        for section in build_report(analysis).sections:
            if section.key == "input":
                cells = [row[2] for block in section.blocks if isinstance(block, Table) for row in block.rows]
                named = [cell for cell in cells if cell.code]
                assert all(cell.text.endswith("()") and cell.note.startswith("begins at ") for cell in named)
                seen += len(named)
        for part in analysis.input:
            if part.site and f"{part.site.function}()" in analysis.verdict and "mostly in" in analysis.verdict:
                assert f"which begins at {part.site.file.rpartition('/')[2]}:{part.site.line}" in analysis.verdict
    assert seen >= 2
