"""Which line is new, and which one has only moved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.check.changes import changes_of
from profiler.check.model import Change, Counted
from tests.fakes.counting import Key, at, lines_of, one

Line = tuple[Key, tuple[int, float, str]]


def changed(before: list[Line], after: list[Line]) -> list[tuple[str, int, float, float]]:
    found = changes_of("would_sync", [one(lines=lines_of(*before))], [one(lines=lines_of(*after))])
    return [(change.file, change.line, change.before, change.after) for change in found]


LOSS = "total += loss.item()"
NORM = "norm = grads.item()"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [at(104, 20, LOSS)], [("train.py", 104, 0.0, 1.0)]),
        ([at(9, 20, LOSS)], [at(9, 20, LOSS)], []),
        ([at(9, 20, LOSS)], [at(12, 20, LOSS)], []),  # moved
        ([at(9, 20, LOSS)], [at(9, 20, NORM), at(10, 20, LOSS)], [("train.py", 9, 0.0, 1.0)]),  # before it
        ([at(9, 20, LOSS)], [at(9, 20, LOSS), at(10, 20, NORM)], [("train.py", 10, 0.0, 1.0)]),  # behind it
        ([at(9, 20, LOSS)], [at(9, 20, LOSS), at(10, 20, LOSS)], [("train.py", 10, 0.0, 1.0)]),  # the same once more
        ([at(9, 20, LOSS)], [at(9, 60, LOSS)], [("train.py", 9, 1.0, 3.0)]),  # in a loop now
        ([at(9, 20, LOSS)], [at(9, 20, "total = loss.item()")], []),  # edited
        ([at(9, 20, LOSS)], [at(9, 20, LOSS, function="fit")], []),  # its function has another name
        ([at(9, 20, LOSS)], [at(70, 20, LOSS, file="loop.py", function="fit")], []),  # in another file
        ([at(9, 20, LOSS), at(20, 20, NORM)], [at(9, 20, LOSS)], []),  # fewer
        (
            [at(9, 20, LOSS)],
            [at(3, 20, NORM, file="norm.py", function="clip"), at(9, 40, LOSS), at(11, 60, "x")],
            [("train.py", 11, 0.0, 3.0), ("norm.py", 3, 0.0, 1.0), ("train.py", 9, 1.0, 2.0)],  # the most first
        ),
    ],
)
def test_lines_that_rose(before: list[Line], after: list[Line], expected: list[tuple[str, int, float, float]]) -> None:
    assert changed(before, after) == expected


def test_without_texts_lines_are_known_by_their_place() -> None:
    assert changed([at(9, 20)], [at(11, 20)]) == []
    assert changed([at(9, 20)], [at(9, 20), at(11, 20)]) == [("train.py", 11, 0.0, 1.0)]


def test_what_only_one_process_did_more_is_no_change() -> None:
    quiet, loud = one(lines=lines_of(at(9, 20, LOSS))), one(lines=lines_of(at(9, 30, LOSS), at(10, 20, NORM)))
    assert changes_of("would_sync", [quiet, quiet], [quiet, loud]) == ()
    assert changes_of("would_sync", [quiet, loud], [loud, loud]) == ()
    assert [found.line for found in changes_of("would_sync", [quiet, quiet], [loud, loud])] == [10, 9]


def test_only_the_counter_that_is_asked_for() -> None:
    both = [one(lines=lines_of(at(9, 20, LOSS), at(9, 20, LOSS, counter="syncs")))]
    found = changes_of("syncs", [one()], both)
    assert found == (Change("syncs", "train.py", 9, "main", "item", 0.0, 1.0),)


def test_sums_at_sites_do_where_there_are_no_lines() -> None:
    after = replace(one(lines=lines_of(at(9, 20, LOSS))), lines={})
    assert [found.line for found in changes_of("would_sync", [one()], [after])] == [9]


def test_lines_of_workers_are_their_own() -> None:
    def side(*lines: Line) -> list[Counted]:
        return [replace(one(), worker_lines=lines_of(*lines))]

    before, after = side(at(9, 160, LOSS)), side(at(9, 160, LOSS), at(10, 160, NORM))
    assert [found.line for found in changes_of("would_sync", before, after, workers=True)] == [10]
    assert changes_of("would_sync", before, after) == ()
