"""What ends a step is said from the moments in their order."""

from __future__ import annotations

import pytest

from profiler.check.speed.step import BATCHES, chosen, in_words

ADAM, SGD, LOADER = "0 Adam (train.py:9)", "0 SGD (train.py:10)", "1 DataLoader (train.py:7)"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([], None),
        ([LOADER, ADAM] * 2, None),
        ([LOADER, ADAM] * 3, ADAM),
        ([LOADER] * 8 + [ADAM], None),
        (([LOADER] * 8 + [ADAM]) * 3, ADAM),  # gradients of eight batches gathered
        ([LOADER, ADAM, SGD] * 3, SGD),  # two optimizers in turns: the last ends the round
        ([LOADER] * (BATCHES - 1), None),
        ([LOADER] * BATCHES, LOADER),
        ([LOADER, ADAM, "mark"], "mark"),
    ],
)
def test_chosen(seen: list[str], expected: str | None) -> None:
    assert chosen(seen) == expected


def test_in_words() -> None:
    assert in_words(ADAM) == "steps of Adam (train.py:9)"
    assert in_words(LOADER) == "batches of DataLoader (train.py:7)"
    assert in_words("mark") == "steps as the program marks them"
