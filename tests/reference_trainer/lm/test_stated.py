"""The results that the language model states: any set of fixes states the same, and no planted error does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler import marks
from profiler.analyse.comparability import SideRuns, compare_results
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import ResultComparison
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import StatedResult
from reference_trainer.devices.host import HostDevice
from reference_trainer.kernels import adamw, cross_entropy, embed, predict, rewards, scan, scan_backward
from reference_trainer.lm import loop, stated
from reference_trainer.lm.model import PRESETS
from reference_trainer.lm.plan import fixes, variant_fixes
from reference_trainer.lm.settings import Settings
from tests.recorded.directories import info
from tests.reference_trainer.lm import learners, plants
from tests.reference_trainer.processes import raising

pytestmark = pytest.mark.usefixtures("own_cache")
TOKENS = 600
"""Tokens of a chunk: with so many, some predictions are right by chance, so that the modulator is not 0."""
FIXED = variant_fixes("fixed", "host")
Run = Callable[..., tuple[StatedResult, ...]]
Patch = pytest.MonkeyPatch


def comparisons(*sides: Sequence[StatedResult]) -> tuple[ResultComparison, ...]:
    runs = [Analysis(info(), {}, {}, {}, results=tuple(results)) for results in sides]
    return compare_results([SideRuns(str(number), "", (run,), None) for number, run in enumerate(runs)])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, corpus_file: Path) -> Run:
    """Call it to train a variant, or with fixes, recorded in this process, for the results that the run states."""

    def train(
        chosen: str | Sequence[str], *, in_full_s: float = float("inf"), **values: Any
    ) -> tuple[StatedResult, ...]:
        folder = tmp_path_factory.mktemp("run") / "run"
        store.create(folder)
        store.write_manifest(folder, info(state="complete"))
        way = {"variant": chosen} if isinstance(chosen, str) else {"fixes": tuple(chosen)}
        settings = Settings(
            **{
                "device": "host",
                "tokens_per_chunk": TOKENS,
                "samples_per_chunk": 4,
                "corpus": corpus_file,
                "warmup_seconds": 0,
                "max_chunks": 1,
                **way,
                **values,
            }
        )
        with pytest.MonkeyPatch.context() as patch, closing(marks.Recorder(folder, "light")) as recorder:
            patch.setattr(marks, "_recorder", recorder)
            patch.setattr(stated, "MAX_SECONDS", in_full_s)  # a busy machine may take long to compile the kernels
            patch.setattr(stated, "SECOND_PASS_S", float("inf"))
            loop.train(settings)
            recorder.flush()
        return load(folder).results

    return train


@pytest.fixture(scope="module")
def expected(run: Run, cache_home: Path) -> dict[str, tuple[StatedResult, ...]]:
    """The results of as-found, and of a model that learns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache_home))
        return {"forward": run("as-found"), "learn": run(learners.LEARN)}


def test_what_is_stated(run: Run, expected: dict[str, tuple[StatedResult, ...]]) -> None:
    """Three chunks, the vocabulary, and both at the end; of all others what can be told without their logits."""
    full, others = stated.CHUNKS + 3, stated.CHUNKS + 1
    names = Counter(result.name for result in expected["forward"])
    assert names == {
        "predictions": full, "correct predictions": full, "state": full, "loss": 3,
        "running checksum of the text": others, "sums over predictions": others,
        "chunks that are not of the text": 1, "tokens that are not counted once": 1,
        "chunks whose predictions are not kept": 1,
        "predictions that the reported loss miscounts": 1, "chunks that a second pass predicts otherwise": 1,
    }  # fmt: skip
    assert names.keys() == {result.name for result in run("fixed")}
    assert sum(result.values[0] for result in expected["forward"] if result.name == "correct predictions") > 1
    learned = [result.name for result in expected["learn"]]
    assert learned[:7] == ["predictions", *["losses", "state"] * stated.CHUNKS]
    assert set(learned[7:]) == {"running checksum of the text", "chunks that are not of the text"}
    for results in expected.values():
        assert [result.values[0] for result in results if result.name == "chunks that are not of the text"] == [0]


@pytest.mark.parametrize("chosen", [FIXED, *(FIXED[: number + 1] for number in range(0, len(FIXED), 3))], ids="+".join)
def test_fixes_change_no_result(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], chosen: tuple[str, ...]
) -> None:
    """It is also true of a run with another number of measured chunks: these state nothing."""
    needed = dict.fromkeys(another for name in chosen for another in closure(name))
    assert not any(result.difference for result in comparisons(expected["forward"], run(needed)))


def closure(name: str) -> tuple[str, ...]:
    """The fix with all that it requires."""
    return tuple(dict.fromkeys((*(one for each in fixes()[name].requires for one in closure(each)), name)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("tokens", [150, 333, 1000])
def test_honest_variants_are_never_refused(run: Run, seed: int, tokens: int) -> None:
    """Ninety comparisons of as-found with fixed and with two sets of fixes."""
    before = run("as-found", tokens_per_chunk=tokens, seed=seed)
    for chosen in ("fixed", FIXED[: 1 + seed % len(FIXED)], closure(FIXED[seed % len(FIXED)])):
        if not isinstance(chosen, str):
            chosen = tuple(dict.fromkeys(another for name in chosen for another in closure(name)))
        after = run(chosen, tokens_per_chunk=tokens, seed=seed, max_chunks=70)
        assert not any(result.difference for result in comparisons(before, after))


def test_a_slow_run_states_less(run: Run, expected: dict[str, tuple[StatedResult, ...]]) -> None:
    """Only its first chunk is stated in full, and the next ones do not begin from a state of zero."""
    slow = run("as-found", in_full_s=1e-9, max_chunks=4)
    names = Counter(result.name for result in slow)
    assert names["state"] == 1
    assert names["chunks that a second pass predicts otherwise"] == 0
    assert names["sums over predictions"] == stated.CHUNKS
    assert not [each for each in comparisons(run("fixed", max_chunks=9), slow) if each.difference]


def test_another_seed_has_other_results(run: Run, expected: dict[str, tuple[StatedResult, ...]]) -> None:
    different = {result.name for result in comparisons(expected["forward"], run("fixed", seed=1)) if result.difference}
    assert different >= {"predictions", "correct predictions", "state", "loss", "sums over predictions"}


def test_nothing_is_observed_without_a_recording(corpus_file: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(stated, "Statements", raising(AssertionError("it is observed")))
    settings = Settings(device="host", tokens_per_chunk=50, corpus=corpus_file, max_chunks=2, warmup_seconds=0)
    loop.train(settings)


@pytest.mark.parametrize("error", plants.ERRORS.values(), ids=plants.ERRORS.keys())
def test_every_planted_error_is_refused(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], error: plants.Mutation, monkeypatch: Patch
) -> None:
    error(monkeypatch)
    after = run("fixed", max_chunks=plants.CHUNKS)
    assert any(result.difference for result in comparisons(expected["forward"], after))


@pytest.mark.parametrize("change", plants.ROUNDING.values(), ids=plants.ROUNDING.keys())
def test_rounding_is_not_refused(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], change: plants.Mutation, monkeypatch: Patch
) -> None:
    change(monkeypatch)
    after = run("fixed", max_chunks=plants.CHUNKS)
    assert not any(result.difference for result in comparisons(expected["forward"], after))


@pytest.mark.slow
@pytest.mark.parametrize("error", plants.ERRORS.values(), ids=plants.ERRORS.keys())
def test_planted_errors_are_refused_in_the_switchable_pipeline(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], error: plants.Mutation, monkeypatch: Patch
) -> None:
    error(monkeypatch)
    after = run(FIXED, max_chunks=plants.CHUNKS)
    assert any(result.difference for result in comparisons(expected["forward"], after))


def one_place_off_learning(device: HostDevice, values: list[Any]) -> None:
    ids = device.download(values[5])
    values[5] = device.upload(np.roll(ids, 1))


LEARNING_ERRORS: dict[str, plants.Mutation] = {
    "losses are those of other tokens": plants.launches(cross_entropy.KERNEL, one_place_off_learning),
    "no update": plants.launches(adamw.KERNEL, lambda *_: False),
    "the gradient of the embedding is missing": plants.launches(embed.BACKWARD, lambda *_: False),
    "gradients do not pass through time": plants.launches(scan_backward.KERNEL, lambda *_: False),
}


@pytest.mark.parametrize("error", LEARNING_ERRORS.values(), ids=LEARNING_ERRORS.keys())
def test_planted_errors_in_learning_are_refused(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], error: plants.Mutation, monkeypatch: Patch
) -> None:
    error(monkeypatch)
    assert any(result.difference for result in comparisons(expected["learn"], run(learners.LEARN)))


def test_learning_states_the_same_with_other_fixes(run: Run, expected: dict[str, tuple[StatedResult, ...]]) -> None:
    assert not any(result.difference for result in comparisons(expected["learn"], run(learners.AHEAD)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        plants.kernel_code(scan.SCAN, "x[t, j] += h", "x[t, j] = h"),
        plants.kernel_code(scan.SCAN, "+ modulator", "- modulator"),
        plants.kernel_code(scan.SCAN, "state[j] = h", "state[j] = x[t, j]"),
        plants.kernel_code(rewards.MODULATE, "DECAY * modulator[0] + _GAIN * reward", "DECAY * modulator[0]"),
        plants.kernel_code(predict.SCORE, "ids[t + 1] == first", "ids[t] == first"),
        plants.kernel_code(embed.EMBED, "for j in range(width)", "for j in range(width - 1)"),
    ],
)
def test_planted_errors_in_kernels_are_refused(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], error: plants.Mutation, monkeypatch: Patch
) -> None:
    error(monkeypatch)
    assert any(result.difference for result in comparisons(expected["forward"], run("fixed")))


def test_margins() -> None:
    logits = np.array([[1.0, 5.0, 4.5], [2.0, 2.0, -1.0]])
    assert stated.margins(logits).tolist() == [0.5, 0.0]


def test_logits_of_a_large_vocabulary_are_not_fetched() -> None:
    config = PRESETS["gpu"]
    assert stated.are_stated(config, 3000, learn=False)
    large = replace(config, vocabulary=250_000)
    assert not stated.are_stated(large, 3000, learn=False)
    assert stated.are_stated(large, 300, learn=False)
    assert stated.are_stated(large, 3000, learn=True), "learning states losses, which need no logits on the host"
