"""The size of the product. These figures only fall: whoever adds something looks first what can serve, or go."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from profiler.core.plugins import discover
from tests.fakes.programs import ROOT

PRODUCT: Final = ROOT / "profiler"
FILES: Final = 282
LINES: Final = 69_505
LINES_OF: Final = {
    "agent": 7_035, "analyse": 12_978, "check": 11_430, "commands": 1_960, "core": 2_497, "diagnose": 7_173,
    "exact": 3_470, "frameworks": 499, "knockout": 1_345, "mcp": 566, "record": 4_519, "report": 10_646,
    "run": 4_290,
}  # fmt: skip
RULES: Final = 70
LONGEST: Final = 69
"""Lines of a function, at most. Few are longer than 50."""


def files(folder: Path = PRODUCT) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def functions() -> Iterator[tuple[str, int]]:
    for path in files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_the_product_has_no_more_files_and_lines() -> None:
    assert len(files()) <= FILES
    assert lines(files()) <= LINES


def test_every_room_has_a_budget() -> None:
    assert {path.name for path in PRODUCT.iterdir() if files(path)} == set(LINES_OF)


@pytest.mark.parametrize("room", LINES_OF)
def test_a_room_has_no_more_lines(room: str) -> None:
    assert lines(files(PRODUCT / room)) <= LINES_OF[room]


def test_there_are_no_more_rules() -> None:
    assert len(discover("profiler.diagnose.rules")) <= RULES


def test_no_function_is_longer() -> None:
    assert [name for name, length in functions() if length > LONGEST] == []
