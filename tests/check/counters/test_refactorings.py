"""Changes of three training programs: those that do the same work pass, and planted faults fail at their line."""

from __future__ import annotations

import pytest
import torch

from profiler.check.model import FAIL, PASS
from profiler.check.outputs.first_screen import first_screen
from tests.benchmarks.gate_refactorings import judged
from tests.benchmarks.planted_faults import FAULTS
from tests.benchmarks.refactorings import HONEST, Edit

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="what is counted are reads on the CPU")


def chosen(edits: tuple[Edit, ...], *names: str) -> list[Edit]:
    found = [edit for edit in edits if edit.name in names]
    assert len(found) == len(names)
    return found


def test_a_helper_and_a_split_statement_pass() -> None:
    edits = chosen(HONEST, "extract a helper around item()", "split a statement", "move a function to another file")
    assert [each.state for each in judged(edits)] == [PASS] * 3


def test_a_hidden_wait_fails_at_its_line_and_an_earlier_one_tells_so() -> None:
    edits = chosen(FAULTS, "a helper hides an item()", "a helper with a wait is called before the backward pass")
    hidden, earlier = judged(edits)
    assert (hidden.state, hidden.is_named, earlier.state, earlier.is_named) == (FAIL, True, FAIL, True)
    codes = {reason.code for line in earlier.lines for reason in line.reasons}
    assert "waits-earlier" in codes


def test_the_changed_line_leads_where_it_makes_unchanged_lines_count_more() -> None:
    """A program each: the calling line, the lines that it makes run more often as one, and what they have in common."""
    edits = chosen(FAULTS, "a helper hides an item()", "the model runs twice", "the average is updated twice")
    hidden, twice, average = (each.result for each in judged(edits))
    screen = first_screen(twice, ())
    assert (screen.places[0].source, screen.places[0].change) == ("for _ in range(2):", "changed in this diff")
    assert "more functions count " in screen.why[0]
    assert screen.places[1].location.endswith(" more lines")
    assert len(screen.places) <= 3, "and not each of the lines of the model"
    changed, updated = first_screen(average, ()).places
    assert changed.source == "for _ in range(2):"
    assert (updated.change, "update_ema" in updated.location) == ("56 → 112 operators", True)
    (place,) = first_screen(hidden, ()).places
    assert (place.change, bool(place.diff)) == ("0 → 1 sync, 0 → 1 operator", True)
    assert place.location.endswith(", changed in this diff")


@pytest.mark.slow
def test_all_changes() -> None:
    honest, faults = list(judged(HONEST)), list(judged(FAULTS))
    assert [each.edit.name for each in honest if each.state == FAIL] == []
    failed = [each for each in faults if each.state == FAIL]
    assert len(failed) >= 0.95 * len(faults)
    assert sum(each.is_named for each in failed) >= 0.9 * len(faults)
