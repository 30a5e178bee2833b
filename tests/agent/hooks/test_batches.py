"""What is seen of a batch: its items, and its padding only where that is certain."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from profiler.agent.hooks.loader import count_items, padding, padding_line, padding_of_rows  # noqa: E402


@pytest.mark.parametrize(
    ("batch", "items"),
    [
        (torch.zeros(4, 3), 4),
        ((torch.zeros(4, 3), torch.zeros(4)), 4),
        ({"x": torch.zeros(4, 3), "name": "b"}, 4),
        (UserDict({"x": torch.zeros(4, 3), "y": torch.tensor(1)}), 4),
        ((torch.zeros(4, 3), torch.zeros(5)), 0),
        (torch.tensor(1.0), 0),
        ("text", 0),
        (7, 0),
    ],
)
def test_items(batch: Any, items: int) -> None:
    assert count_items(batch) == items


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[5, 6, 7, 8], [5, 6, 0, 0], [5, 0, 0, 0]], (12, 5, 0)),
        ([[5, 6, 7, 8], [5, 6, 7, 9]], None),
        ([[5, 6, 0, 0], [7, 8, 0, 0]], None),  # rows of one length: it may be a value like any other
        ([[5, 0, 7, 8], [5, 6, 0, 0], [5, 0, 0, 0]], None),  # 0 stands for something else too
        ([[5, 6, 7, 7], [5, 6, 0, 0], [5, 0, 0, 0]], None),  # two ids
        ([[5, 6, 7, 8], [5, 6, -100, -100], [5, -100, -100, -100]], None),  # labels
        ([[-100, 6, 7, 8], [-100, 6, 0, 0], [-100, 0, 0, 0]], None),
    ],
)
def test_padding_is_one_id_at_the_end_of_rows_only(rows: list[list[int]], expected: object) -> None:
    assert padding_of_rows(rows) == expected


def test_only_token_ids_are_looked_at() -> None:
    rows = torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8], [5, 6, 7, 0, 0, 0, 0, 0]])
    assert padding({"input_ids": rows}) == (16, 5, 0)
    labels = rows.masked_fill(rows == 0, -100)
    assert padding({"labels": labels}) is None
    assert padding({"labels": labels, "input_ids": rows}) == (16, 5, 0)
    assert padding(rows.float()) is None
    assert padding(rows[:, :4]) is None
    assert padding(rows[0]) is None


def collate(rows: list[torch.Tensor]) -> torch.Tensor:
    rows = [row[:512] for row in rows]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def name(rows: list[torch.Tensor]) -> tuple[str, torch.Tensor]:
    lpad = torch.stack(rows)
    return "padded at the launchpad", lpad


def stack(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(rows)


def test_the_line_that_pads() -> None:
    line = padding_line(collate.__code__)
    assert line is not None
    assert line["line"] == collate.__code__.co_firstlineno + 2
    assert line["function"] == "collate"
    assert padding_line(stack.__code__) is None, "nothing there pads"
    assert padding_line(name.__code__) is None, "names and texts pad nothing"
    assert padding_line(None) is None, "a library made the batch"
