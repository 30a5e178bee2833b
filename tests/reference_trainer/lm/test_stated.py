"""The results that the language model states: any set of fixes states the same, and no planted error does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from profiler import marks
from profiler.analyse.compare.comparability import compare_results
from profiler.analyse.compare.ratios import SideRuns
from profiler.analyse.model import Analysis, ResultComparison
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import StatedResult
from reference_trainer.devices.host import HostDevice
from reference_trainer.jit import cfunc
from reference_trainer.kernels import adamw, cross_entropy, embed, embed_backward, modulate, scan, scan_backward, score
from reference_trainer.lm import loop, parallel_tokenize, stated
from reference_trainer.lm.model import PRESETS
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import fixes, variant_fixes
from reference_trainer.lm.settings import Settings
from tests.recorded.directories import info
from tests.reference_trainer.lm import learners

pytestmark = pytest.mark.usefixtures("own_cache")
TOKENS = 600
"""Tokens of a chunk: with so many, some predictions are right by chance, so that the modulator is not 0."""
FIXED = variant_fixes("fixed", "host")
Run = Callable[..., tuple[StatedResult, ...]]
Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]


def comparisons(*sides: Sequence[StatedResult]) -> tuple[ResultComparison, ...]:
    runs = [Analysis(info(), {}, {}, {}, results=tuple(results)) for results in sides]
    return compare_results([SideRuns(str(number), "", (run,), None) for number, run in enumerate(runs)])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, corpus_file: Path) -> Run:
    """Call it to train with these fixes, recorded in this process, for the results that the run states."""

    def train(*names: str, tokens: int = TOKENS, seed: int = 0) -> tuple[StatedResult, ...]:
        folder = tmp_path_factory.mktemp("run") / "run"
        store.create(folder)
        store.write_manifest(folder, info(state="complete"))
        settings = Settings(
            device="host", fixes=names, tokens_per_chunk=tokens, samples_per_chunk=4, corpus=corpus_file, seed=seed,
            max_chunks=1, warmup_seconds=0,
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch, closing(marks.Recorder(folder, "light")) as recorder:
            patch.setattr(marks, "_recorder", recorder)
            patch.setattr(stated, "MAX_SECONDS", float("inf"))  # a busy machine may take long to compile the kernels
            loop.train(settings)
            recorder.flush()
        return load(folder).results

    return train


@pytest.fixture(scope="module")
def expected(run: Run, cache_home: Path) -> dict[str, tuple[StatedResult, ...]]:
    """The results of as-found, and of a model that learns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache_home))
        return {"forward": run(), "learn": run(*learners.LEARN)}


def test_what_is_stated(expected: dict[str, tuple[StatedResult, ...]]) -> None:
    names = [result.name for result in expected["forward"]]
    assert names == ["predictions", "correct predictions", "state"] * stated.CHUNKS
    assert sum(result.values[0] for result in expected["forward"] if result.name == "correct predictions") > 1
    assert [result.name for result in expected["learn"]] == ["predictions", *["losses", "state"] * stated.CHUNKS]


@pytest.mark.parametrize("chosen", [FIXED, *(FIXED[: number + 1] for number in range(0, len(FIXED), 3))], ids="+".join)
def test_fixes_change_no_result(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], chosen: tuple[str, ...]
) -> None:
    """It is also true of a run with another number of measured chunks: these state nothing."""
    needed = dict.fromkeys(another for name in chosen for another in closure(name))
    assert all(result.are_same for result in comparisons(expected["forward"], run(*needed)))


def closure(name: str) -> tuple[str, ...]:
    """The fix with all that it requires."""
    return tuple(dict.fromkeys((*(one for each in fixes()[name].requires for one in closure(each)), name)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("tokens", [150, 333, 1000])
def test_honest_variants_are_never_refused(run: Run, seed: int, tokens: int) -> None:
    """Ninety comparisons of as-found with three sets of fixes."""
    before = run(tokens=tokens, seed=seed)
    for chosen in (FIXED, FIXED[: 1 + seed % len(FIXED)], closure(FIXED[seed % len(FIXED)])):
        needed = dict.fromkeys(another for name in chosen for another in closure(name))
        assert all(result.are_same for result in comparisons(before, run(*needed, tokens=tokens, seed=seed)))


def test_another_seed_has_other_results(run: Run, expected: dict[str, tuple[StatedResult, ...]]) -> None:
    assert all(result.difference for result in comparisons(expected["forward"], run(*FIXED, seed=1)))


def test_nothing_is_kept_without_a_recording(corpus_file: Path, monkeypatch: Patch) -> None:
    kept: list[bool] = []
    submit = Pipeline.submit

    def observed(self: Pipeline, ids: np.ndarray, *, keep: bool = False) -> None:
        kept.append(keep)
        submit(self, ids, keep=keep)

    monkeypatch.setattr(Pipeline, "submit", observed)
    settings = Settings(device="host", tokens_per_chunk=50, corpus=corpus_file, max_chunks=2, warmup_seconds=0)
    loop.train(settings)
    assert kept == [False] * 3


# ---------------------------------------------------------------- planted errors in the fixed program


def launches(kernel: Any, change: Callable[[HostDevice, list[Any]], Any]) -> Mutation:
    """Change the arguments of a kernel's launches in place; `change` may return False to leave the launch out."""

    def plant(patch: Patch) -> None:
        launch = HostDevice.launch

        def changed(self: HostDevice, launched: Any, *arguments: Any) -> None:
            values = [*arguments]
            if launched is not kernel or change(self, values) is not False:
                launch(self, launched, *values)

        patch.setattr(HostDevice, "launch", changed)

    return plant


def argument(index: int, change: Callable[[Any], Any]) -> Callable[[HostDevice, list[Any]], None]:
    def changed(_: HostDevice, values: list[Any]) -> None:
        values[index] = change(values[index])

    return changed


def zeros(index: int) -> Callable[[HostDevice, list[Any]], None]:
    """A buffer of zeros instead of the one that the kernel shares with other launches."""

    def changed(device: HostDevice, values: list[Any]) -> None:
        values[index] = device.zeros(values[index].shape)

    return changed


def source(change: Callable[[Callable[[int], np.ndarray], int], np.ndarray]) -> Mutation:
    """Change the chunks that the fixed program is given: `change(ids, index)`."""

    def plant(patch: Patch) -> None:
        ids = parallel_tokenize.ParallelChunks.ids
        patch.setattr(
            parallel_tokenize.ParallelChunks, "ids", lambda self, index: change(lambda i: ids(self, i), index)
        )

    return plant


def swapped_samples(patch: Patch) -> None:
    encode = parallel_tokenize.ParallelChunks._encode

    def changed(self: parallel_tokenize.ParallelChunks, task: int) -> tuple[list[np.ndarray], float]:
        pieces, took = encode(self, task)
        return pieces[::-1], took

    patch.setattr(parallel_tokenize.ParallelChunks, "_encode", changed)


def uploads(change: Callable[[Sequence[np.ndarray]], np.ndarray]) -> Mutation:
    """Change the ids that are uploaded; `change` gets those of all chunks so far."""

    def plant(patch: Patch) -> None:
        upload, so_far = HostDevice.prefetch_into, list[np.ndarray]()

        def changed(self: HostDevice, buffer: Any, array: np.ndarray) -> None:
            so_far.append(np.array(array))
            array[:] = np.resize(change(so_far), array.shape)
            upload(self, buffer, array)

        patch.setattr(HostDevice, "prefetch_into", changed)

    return plant


def weights(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Mutation:
    """Change the weights that the fixed program computes with."""

    def plant(patch: Patch) -> None:
        initial = loop.initial_weights

        def changed(config: Any, seed: int) -> Any:
            made = initial(config, seed)
            array = np.ascontiguousarray(change(getattr(made, name)))
            assert array.shape == getattr(made, name).shape
            return replace(made, **{name: array})

        patch.setattr(loop, "initial_weights", changed)

    return plant


def products(number: int, change: Callable[[list[Any]], None]) -> Mutation:
    """Change the matrix product of that number in each chunk, of four: two layers, readout, decoder."""

    def plant(patch: Patch) -> None:
        matmul, count = HostDevice.matmul, iter(range(10**6))

        def changed(self: HostDevice, *arguments: Any) -> None:
            values = [*arguments]
            if next(count) % 4 == number:
                change(values)
            matmul(self, *values)

        patch.setattr(HostDevice, "matmul", changed)

    return plant


def fewer_rows(values: list[Any]) -> None:
    values[3] -= 1


def kernel_code(kernel: Any, old: str, new: str) -> Mutation:
    """Compile the kernel with a line changed."""

    def plant(patch: Patch) -> None:
        text = inspect.getsource(kernel.host)
        assert old in text
        names = dict(kernel.host.__globals__)
        exec(text.replace(old, new), names)
        assert isinstance(names["host"], FunctionType)
        compiled = cfunc("void(int64)", fastmath=kernel.fastmath, error_model="numpy")(names["host"])
        patch.setitem(vars(kernel), "_compiled", compiled)
        patch.setitem(vars(kernel), "address", compiled.address)

    return plant


def transposed(square: np.ndarray) -> np.ndarray:
    return square.T


def one_place_off(device: HostDevice, values: list[Any]) -> None:
    """The kernel compares predictions with the tokens that they were made from: ids[t] instead of ids[t + 1]."""
    ids = device.download(values[4])
    values[4] = device.upload(np.concatenate([ids[:1], ids[:-1]]))


def mask_one(device: HostDevice, values: list[Any]) -> None:
    bias = device.download(values[3])
    bias[40] = -np.inf
    values[3] = device.upload(bias)


ERRORS: dict[str, Mutation] = {
    # order and number of chunks and tokens
    "a chunk is dropped": source(lambda ids, index: ids(index + (index > 0))),
    "two chunks change places": source(lambda ids, index: ids({1: 2, 2: 1}.get(index, index))),
    "a chunk is repeated": source(lambda ids, index: ids(max(0, index - 1))),
    "the last token of a chunk is dropped": source(lambda ids, index: ids(index)[:-1]),
    "two tokens change places": source(lambda ids, index: ids(index)[[1, 0, *range(2, len(ids(index)))]]),
    "samples are in another order": swapped_samples,
    "one token has another id": source(lambda ids, index: np.where(np.arange(len(ids(index))) == 99, 5, ids(index))),
    # stale buffers
    "the third chunk finds the ids of the first in its buffer": uploads(lambda so_far: so_far[(len(so_far) - 1) % 2]),
    "ids are uploaded one place too late": uploads(lambda so_far: np.roll(so_far[-1], 1)),
    "the end of the ids is that of the chunk before": uploads(
        lambda so_far: np.append(so_far[-1][:-9], so_far[-2:][0][-9:])
    ),
    # embedding
    "the embeddings of ten ids are missing": weights(
        "embedding", lambda table: np.vstack([table[:10] * 0, table[10:]])
    ),
    "embeddings are those of the next id": weights("embedding", lambda table: np.roll(table, 1, axis=0)),
    "the embedding of the last token is missing": launches(embed.KERNEL, argument(3, lambda tokens: tokens - 1)),
    # recurrence, carry and modulator
    "the recurrence is left out": launches(scan.KERNEL, lambda *_: False),
    "the recurrence ends one token early": launches(scan.KERNEL, argument(5, lambda tokens: tokens - 1)),
    "the state is not carried": launches(scan.KERNEL, zeros(3)),
    "the bias is missing": launches(scan.KERNEL, zeros(2)),
    "the second layer has the bias of the first": launches(scan.KERNEL, argument(7, lambda _: 0)),
    "the modulator is ignored": launches(scan.KERNEL, zeros(4)),
    "the modulator is never updated": launches(modulate.KERNEL, zeros(2)),
    "rewards are not reset": launches(modulate.KERNEL, lambda *_: False),
    # products, predictions and loss
    "the readout is transposed": weights("readout", transposed),
    "a layer is transposed": weights("layer", lambda layers: np.flip(layers, axis=1)),
    "the readout of the last token is missing": products(2, fewer_rows),
    "the logits of the last token are missing": products(3, fewer_rows),
    "targets are one place off": launches(score.KERNEL, one_place_off),
    "the last token is not predicted": launches(score.KERNEL, argument(5, lambda tokens: tokens - 1)),
    "one entry of the vocabulary is never predicted": launches(score.KERNEL, mask_one),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
def test_every_planted_error_is_refused(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], error: Mutation, monkeypatch: Patch
) -> None:
    error(monkeypatch)
    assert any(result.difference for result in comparisons(expected["forward"], run(*FIXED)))


def one_place_off_learning(device: HostDevice, values: list[Any]) -> None:
    ids = device.download(values[5])
    values[5] = device.upload(np.roll(ids, 1))


LEARNING_ERRORS: dict[str, Mutation] = {
    "losses are those of other tokens": launches(cross_entropy.KERNEL, one_place_off_learning),
    "no update": launches(adamw.KERNEL, lambda *_: False),
    "the gradient of the embedding is missing": launches(embed_backward.KERNEL, lambda *_: False),
    "gradients do not pass through time": launches(scan_backward.KERNEL, lambda *_: False),
}


@pytest.mark.parametrize("error", LEARNING_ERRORS.values(), ids=LEARNING_ERRORS.keys())
def test_planted_errors_in_learning_are_refused(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], error: Mutation, monkeypatch: Patch
) -> None:
    error(monkeypatch)
    assert any(result.difference for result in comparisons(expected["learn"], run(*learners.LEARN)))


def test_learning_states_the_same_with_other_fixes(run: Run, expected: dict[str, tuple[StatedResult, ...]]) -> None:
    assert all(result.are_same for result in comparisons(expected["learn"], run(*learners.AHEAD)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        kernel_code(scan.KERNEL, "x[t, j] += h", "x[t, j] = h"),
        kernel_code(scan.KERNEL, "+ modulator", "- modulator"),
        kernel_code(scan.KERNEL, "state[j] = h", "state[j] = x[t, j]"),
        kernel_code(modulate.KERNEL, "DECAY * modulator[0] + _GAIN * reward", "DECAY * modulator[0]"),
        kernel_code(score.KERNEL, "ids[t + 1] == first", "ids[t] == first"),
        kernel_code(embed.KERNEL, "for j in range(width)", "for j in range(width - 1)"),
    ],
)
def test_planted_errors_in_kernels_are_refused(
    run: Run, expected: dict[str, tuple[StatedResult, ...]], error: Mutation, monkeypatch: Patch
) -> None:
    error(monkeypatch)
    assert any(result.difference for result in comparisons(expected["forward"], run(*FIXED)))


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
