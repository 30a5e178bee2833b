"""The ledger of other people's programs: cells sum to all time, and agree with the clock of the thread (law 7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler import load
from profiler.analyse.analysis import analyse
from profiler.analyse.model.ledger import MAIN, Period
from tests.clinic.keep import ARCHIVES

pytestmark = pytest.mark.slow
BLOCKED = ("waiting", "gil", "ranks", "sync")
WITHIN = 0.1
"""How far the active cells may be from the clock, as a share of it."""
FEW = 20
"""Samples below which their error is larger than WITHIN."""
ENOUGH = 200
"""Samples from which lines and records are compared."""
MOST_MOVED = 0.05
MUCH_BLOCKED = 0.05
"""Share of waits from which samples and records are known to disagree about them: how long a rank or a thread waits for
another one is in no sample."""


@pytest.mark.parametrize("path", sorted(ARCHIVES.glob("*.zip")), ids=lambda path: path.stem)
def test_cells_of_an_archive(path: Path) -> None:
    run = load(path)
    if run.info.is_counted:
        pytest.skip("a run that counts has no times")
    ledger = analyse(run).ledger
    for (rank, thread, period), wall in ledger.wall.items():
        assert sum(cell.seconds for cell in ledger.of(period, thread, rank)) == pytest.approx(wall, rel=0.01, abs=1e-6)
    for rank, active in ledger.active.items():
        period = Period.STEPS if (rank, MAIN, Period.STEPS) in ledger.wall else Period.UNSEEN
        cells, wall = [*ledger.of(period, MAIN, rank)], ledger.wall[rank, MAIN, period]
        samples = sum(cell.samples for cell in cells)
        if samples < FEW:
            continue
        shown = sum(cell.seconds for cell in cells if cell.kind not in BLOCKED)
        loading = sum(cell.seconds for cell in cells if cell.kind == "input")  # making batches, or waiting for them
        assert shown - loading <= (1 + WITHIN) * active
        assert shown >= (1 - WITHIN) * active
        waits = sum(cell.seconds for cell in cells if cell.kind in BLOCKED)
        if samples >= ENOUGH and waits < MUCH_BLOCKED * wall:
            assert ledger.moved[rank] <= MOST_MOVED
