"""The conditions of a round are read from the kernel."""

from __future__ import annotations

from pathlib import Path

from profiler.check.speed.system_load import SystemLoad


def test_load_steal_and_throttling(tmp_path: Path) -> None:
    stat, loadavg = tmp_path / "stat", tmp_path / "loadavg"
    stat.write_text("cpu 100 0 0 100 0 0 0 10 5 5\ncpu0 1 2\n")
    load = SystemLoad(lambda: ("GPU 0: power cap",), tmp_path)
    for runnable in (4, 2):
        loadavg.write_text(f"0.5 0.4 0.3 {runnable}/200 17\n")
        load.sample()
    stat.write_text("cpu 160 0 0 120 0 0 0 30 9 9\ncpu0 1 2\n")
    conditions = load.conditions()
    assert (conditions.load, conditions.steal, conditions.throttled) == (2.0, 0.2, ("GPU 0: power cap",))
    assert conditions.cores
    stat.unlink()
    loadavg.unlink()
    unreadable = SystemLoad(proc=tmp_path)
    unreadable.sample()
    assert (unreadable.conditions().load, unreadable.conditions().steal) == (None, None)
