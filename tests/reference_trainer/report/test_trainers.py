"""The bundled trainers as programs of a comparison: their variants, the floor, and the sets of fixes of a ladder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.__main__ import main as profiler_main
from profiler.core.errors import Exit, ProfilerError
from reference_trainer import errors
from reference_trainer.lm.__main__ import main as lm_main
from reference_trainer.report.ladder_plan import plan_ladder, read_fixes
from reference_trainer.report.trainers import FLOOR_LABEL, LM, SSM, BundledTrainer
from reference_trainer.ssm.__main__ import main as ssm_main
from tests.fakes.ladders import document


def test_the_bundled_pair_differs_in_its_variant_only() -> None:
    experiment = LM.pair({"preset": "small", "seconds": "1.5"}, 1)
    as_found, fixed = experiment.programs
    [floor] = [task for task in experiment.tasks if task.kind == "floor"]
    assert [side.label for side in (as_found, fixed, floor.side)] == ["as-found", "fixed", FLOOR_LABEL]
    assert as_found.argv[:5] == (sys.executable, "-m", "reference_trainer.lm", "--preset", "small")
    assert as_found.argv[-2:] == ("--seconds", "1.5")
    assert {*as_found.argv} ^ {*fixed.argv} == {"as-found", "fixed"}
    assert {*floor.side.argv} - {*as_found.argv} == {"--empty-kernels"}
    assert "--seconds" not in as_found.warmup, "a warm-up is one chunk, however long a run is"
    assert as_found.warmup[-4:] == ("--max-chunks", "1", "--warmup-seconds", "0")
    assert (as_found.ours, as_found.hooked) == (True, False)


def test_the_pair_of_the_sweep() -> None:
    experiment = SSM.pair({"device": "cpu", "num-seeds": "9"}, 1)
    as_found, fixed = experiment.programs
    assert "floor" not in {task.kind for task in experiment.tasks}, "it launches no kernels that could be empty"
    assert as_found.argv[:5] == (sys.executable, "-m", "reference_trainer.ssm", "--device", "cpu")
    assert {*as_found.argv} ^ {*fixed.argv} == {"as-found", "fixed"}
    size = {as_found.argv[at]: as_found.argv[at + 1] for at in range(5, len(as_found.argv), 2)}
    assert size == {"--variant": "as-found", "--num-seeds": "9"} | {
        f"--{name}": option.default for name, option in SSM.options.items() if option.default and name != "num-seeds"
    }
    assert "9" not in as_found.warmup, "a warm-up is as small as it can be, however large a run is"
    assert as_found.warmup[5:] == ("--variant", "as-found", *SSM.warmup)
    assert as_found.hooked, "waits and copies of plain torch are found by hooks"


@pytest.mark.parametrize("trainer", [LM, SSM], ids=["lm", "ssm"])
def test_a_ladder_does_less_of_the_same(trainer: BundledTrainer) -> None:
    options = trainer.options.values()
    assert all(bool(option.default) == bool(option.ladder_default) for option in options)
    assert any(option.default != option.ladder_default for option in options)


def test_an_option_of_the_other_trainer_is_refused() -> None:
    with pytest.raises(ProfilerError, match=r"--corpus means nothing to the sweep .*\(--trainer ssm\)") as caught:
        SSM.pair({"device": "cpu", "corpus": "x"}, 1)
    assert caught.value.exit_code == Exit.USAGE


def list_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> BundledTrainer:
    """Instead of the trainer: a module that does `text`."""
    (tmp_path / "listing.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    return replace(LM, module="listing")


def test_the_bundled_ladder_runs_each_set_of_fixes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listing = f"import sys; print({json.dumps(document())!r} if '--list-fixes' in sys.argv else 'nothing')"
    trainer, arguments = list_with(monkeypatch, tmp_path, listing), {"device": "host", "seconds": "0.5"}
    experiment = trainer.ladder(arguments, 1)
    plan, programs = plan_ladder(read_fixes(json.dumps(document()))), experiment.programs
    assert programs[:2] == trainer.pair(arguments, 1).programs, "the sides are those of the plain comparison"
    [floor] = [task for task in experiment.tasks if task.kind == "floor"]
    assert [program.label for program in programs] == [program.label for program in plan.programs]
    by_label = {program.label: program for program in programs}
    start = (sys.executable, "-m", "listing", "--device", "host")
    assert by_label["alone embed (with async)"].argv == (*start, "--fixes", "async,embed", "--seconds", "0.5")
    assert by_label["learn"].warmup == (
        *start, "--fixes", "batch,parallel,async,embed,learn", "--max-chunks", "1", "--warmup-seconds", "0",
    )  # fmt: skip
    assert floor.side.argv[-3:] == ("--empty-kernels", "--seconds", "0.5")


@pytest.mark.parametrize(
    ("text", "message", "code"),
    [
        (
            "raise SystemExit('error: no device x')",
            "its fixes, exited with 1: error: no device x",
            Exit.TARGET_FAILED,
        ),
        ("import sys; sys.exit(print('error: no cuda', file=sys.stderr) or 2)", "no cuda", Exit.USAGE),
        ("raise SystemExit(2)", "exited with 2: it printed nothing", Exit.TARGET_FAILED),
        ("print('usage')", "the trainer's list of fixes (--list-fixes) is wrong: Invalid JSON", Exit.USAGE),
    ],
)
def test_a_trainer_that_does_not_list_its_fixes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, message: str, code: Exit
) -> None:
    trainer = list_with(monkeypatch, tmp_path, text)
    with pytest.raises(ProfilerError) as caught:
        trainer.ladder({}, 1)
    assert message in str(caught.value)
    assert caught.value.exit_code == code


@pytest.mark.parametrize(
    "program",
    [
        lambda: profiler_main(["compare", "--out", "here"]),
        lambda: profiler_main(["compare", "--ladder", "--out", "here"]),
        lambda: profiler_main(["diagnose-tokenization"]),
        lambda: lm_main(["--max-chunks", "1"]),
        lambda: ssm_main([]),
    ],
    ids=["compare", "ladder", "diagnose-tokenization", "lm", "ssm"],
)
def test_missing_packages_are_one_line(
    program: Callable[[], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name in ("numba", "torch") else True)
    assert program() == Exit.USAGE
    assert capsys.readouterr().err == (
        "error: numba and torch are not installed: pip install 'training-profiler[trainer]' gets what the bundled "
        "trainer needs\n"
    )
    assert [*tmp_path.iterdir()] == []
