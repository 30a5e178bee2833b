"""The Python API (`profiler.load`, `read`, `compare`): what the commands say, for notebooks; and light to import."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import profiler
from profiler.core.errors import Exit, ProfilerError
from tests.fakes.programs import finished
from tests.recorded.directories import steps, write_manifest, write_source

STEP_NS = 10_000_000


def recorded(path: Path, *, factor: int = 1, level: str = "light", preset: str = "tiny") -> Path:
    """A run of 20 steps on the host device, each `factor` times as long."""
    write_manifest(path, argv=("train", "--fast me"), level=level)
    rows = steps(20, factor * STEP_NS, tokens=100)
    write_source(path, facts={"device": "host", "preset": preset}, steps=rows)
    return path


def test_load_and_read(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run")
    assert len(profiler.load(run).steps) == 20
    analysis = profiler.read(str(run))
    assert analysis.measures["tokens_per_s"].value == pytest.approx(10_000)
    assert analysis.verdict.startswith("How busy the device was is not known")


def test_compare_pairs_light_runs_and_takes_the_last_detailed_one(tmp_path: Path) -> None:
    slow = [recorded(tmp_path / f"slow-{factor}", factor=factor) for factor in (4, 5)]
    fast = [recorded(tmp_path / f"fast-{factor}", factor=factor) for factor in (2, 1)]
    details = [recorded(tmp_path / f"detail-{factor}", factor=factor, level="standard") for factor in (8, 9)]
    comparison = profiler.compare({"before": [*slow, *details], "after": fast})
    before, after = comparison.sides
    assert (before.label, after.label, comparison.pairs) == ("before", "after", 2)
    assert before.command == "train '--fast me'"
    assert before.detail is not None
    assert before.detail.measures["step_time"].value == pytest.approx(0.09)
    assert after.detail is None
    ratio = comparison.ratios["after"]["tokens_per_s"]
    assert ratio.value == pytest.approx((2 * 5) ** 0.5), "4/2 and 5/1; the breakdown passes are in no ratio"
    assert comparison.verdict


def test_compare_without_light_runs(tmp_path: Path) -> None:
    sides = {
        label: [recorded(tmp_path / label, factor=factor, level="standard")]
        for label, factor in (("before", 3), ("after", 1))
    }
    comparison = profiler.compare(sides)
    assert comparison.ratios["after"]["tokens_per_s"].value == pytest.approx(3)
    assert comparison.sides[0].detail is comparison.sides[0].runs[0]


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    tiny, small = recorded(tmp_path / "tiny"), recorded(tmp_path / "small", preset="small")
    with pytest.raises(ProfilerError, match="not comparable: preset: tiny against small") as caught:
        profiler.compare({"a": [tiny], "b": [small]})
    assert caught.value.exit_code is Exit.NOT_COMPARABLE
    forced = profiler.compare({"a": [tiny], "b": [small]}, anyway=True)
    assert forced.forced
    assert forced.verdict.startswith("Not comparable (preset")
    with pytest.raises(profiler.ProfilerError, match="no run of side b"):
        profiler.compare({"a": [tiny], "b": []})
    with pytest.raises(ProfilerError, match="two sides"):
        profiler.compare({"a": [tiny]})


def test_importing_the_package_imports_nothing_more() -> None:
    """`profiler.marks` brings the package along into every recorded program."""
    code = "import sys; before = set(sys.modules); import profiler; print(*sorted(set(sys.modules) - before))"
    imported = finished([sys.executable, "-S", "-c", code]).stdout.split()
    assert "profiler" in imported
    assert not {name for name in imported if name.startswith("profiler.")}, imported
    assert {name.partition(".")[0] for name in imported} <= {"profiler", *sys.stdlib_module_names}, imported


def test_marks_and_record_are_imported_at_their_first_use() -> None:
    """Also after parts of the package `profiler.record`, which has the name of the function, have been imported."""
    code = (
        "import profiler, sys; assert 'profiler.marks' not in sys.modules\n"
        "first = callable(profiler.record); import profiler.record.launch\n"
        "from profiler.record import session\n"
        "with profiler.region('tokenize'): profiler.step(tokens=3); profiler.count('a'); profiler.gauge('b', 1.0)\n"
        "print(first, callable(profiler.record), profiler.record.session is session, 'step' in vars(profiler))\n"
        "print({'record', 'region', 'step', 'load'} <= set(dir(profiler)), hasattr(profiler, 'nothing'))"
    )
    done = finished([sys.executable, "-c", code])
    assert done.stdout == "True True True True\nTrue False\n"
