"""Chunks tokenized in the background: the same ids, no more than allowed ahead, no hang and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import Chunks
from reference_trainer.lm.corpus import Corpus, load_corpus
from reference_trainer.lm.parallel_tokenize import GROUP, ParallelChunks, default_workers
from reference_trainer.lm.tokenizer import Tokenizer, train_or_load
from tests.fakes.programs import ROOT
from tests.reference_trainer.lm.threads import all_threads, eventually

TOKENS, SAMPLES = 400, 4


@pytest.fixture
def corpus(corpus_file: Path, own_cache: None) -> Corpus:
    return load_corpus(corpus_file)


@pytest.fixture
def tokenizer(corpus: Corpus) -> Tokenizer:
    return train_or_load(corpus, 256)


HELD_UP: list[threading.Event] = []


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """A test that fails while a worker is held up must not keep the tests from ending."""
    yield
    while HELD_UP:
        HELD_UP.pop().set()


class Watched:
    """A tokenizer that notes what it is asked for, and may be held up or broken; the real one does the work."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.chars_per_token = tokenizer.chars_per_token
        self.texts: list[str] = []
        self.threads: set[str] = set()
        self.go_on = threading.Event()
        self.go_on.set()
        HELD_UP.append(self.go_on)
        self.fault: BaseException | None = None
        self._tokenizer = tokenizer
        self._noting = threading.Lock()

    def encode_arrays(self, texts: list[str], threads: object) -> list[np.ndarray]:
        with self._noting:
            self.texts += texts
            self.threads.add(threading.current_thread().name)
        assert self.go_on.wait(30)
        if self.fault is not None:
            raise self.fault
        return self._tokenizer.encode_arrays(texts, threads)


def release_when_dropped(parallel: ParallelChunks, watched: Watched) -> None:
    """Let the worker go on once `close`, which waits for it, has dropped the last of what waits."""
    last = list(parallel._pending.values())[-1]

    def release() -> None:
        eventually(last.cancelled)
        watched.go_on.set()

    threading.Thread(target=release).start()


def all_of(source: ParallelChunks, indices: Iterable[int]) -> list[np.ndarray]:
    return [source.ids(index) for index in indices]


def tokenizing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tokenize")]


@pytest.mark.parametrize(("workers", "ahead"), [(1, 0), (2, 1), (2, 16), (3, 7)])
def test_the_same_ids_over_the_end_of_the_text(corpus: Corpus, tokenizer: Tokenizer, workers: int, ahead: int) -> None:
    plain = Chunks(corpus, tokenizer, TOKENS, SAMPLES, batch=False)
    parallel = ParallelChunks(corpus, tokenizer, TOKENS, SAMPLES, workers=workers, ahead=ahead)
    assert parallel.chars_per_sample == plain.chars_per_sample
    epoch = len(corpus.text) // (plain.chars_per_sample * SAMPLES)
    try:
        for index in range(2 * epoch):
            ids, expected = parallel.ids(index), plain.ids(index)
            assert ids.dtype == expected.dtype == np.int32
            assert np.array_equal(ids, expected), index
            assert parallel.texts(index) == plain.texts(index)
    finally:
        parallel.close()


def test_any_order_is_right_and_so_is_after_the_close(corpus: Corpus, tokenizer: Tokenizer) -> None:
    plain = Chunks(corpus, tokenizer, TOKENS, SAMPLES, batch=True)
    parallel = ParallelChunks(corpus, tokenizer, TOKENS, SAMPLES, workers=2, ahead=5)
    for index in (3, 4, 4, 0, 30, 33, 2, 3, 9):
        assert np.array_equal(parallel.ids(index), plain.ids(index)), index
    parallel.close()
    assert np.array_equal(parallel.ids(4), plain.ids(4))
    parallel.close()


def test_nothing_is_kept_or_done_of_what_is_no_longer_next(corpus: Corpus, tokenizer: Tokenizer) -> None:
    watched = Watched(tokenizer)
    parallel = ParallelChunks(corpus, watched, TOKENS, SAMPLES, workers=1, ahead=8)
    for index in (0, 5, 6, 13, 40, 2, 3):
        parallel.ids(index)
        remaining = sorted(parallel._pending)
        assert remaining[0] > index, remaining
        assert remaining[-1] <= index + 8, remaining
    for future in list(parallel._pending.values()):
        future.result()
    watched.go_on.clear()
    parallel._submit(20)
    assert eventually(lambda: set(parallel.texts(20)) <= set(watched.texts)), "the worker is held up in the first group"
    for index in (30, 50):  # each gives up what was submitted before it
        parallel._submit(index)
    watched.go_on.set()
    parallel._pool.shutdown(wait=True)
    given_up = {text for index in (24, 25, 30, 31) for text in parallel.texts(index)}
    assert not given_up & set(watched.texts)
    assert set(parallel.texts(50)) <= set(watched.texts)


def test_after_the_close_what_was_dropped_is_tokenized(corpus: Corpus, tokenizer: Tokenizer) -> None:
    watched = Watched(tokenizer)
    parallel = ParallelChunks(corpus, watched, TOKENS, SAMPLES, workers=1, ahead=100)
    watched.go_on.clear()
    parallel._submit(0)
    release_when_dropped(parallel, watched)
    parallel.close()
    expected = Chunks(corpus, tokenizer, TOKENS, SAMPLES, batch=True).ids(60)
    assert np.array_equal(parallel.ids(60), expected)
    parallel.close()


@pytest.mark.parametrize("ahead", [0, 1, 3, 16])
def test_the_look_ahead_is_bounded(corpus: Corpus, tokenizer: Tokenizer, ahead: int) -> None:
    watched = Watched(tokenizer)
    parallel = ParallelChunks(corpus, watched, TOKENS, SAMPLES, workers=2, ahead=ahead)
    for index in range(9):
        parallel.ids(index)
        assert len(watched.texts) <= (index + 1 + ahead) * SAMPLES, index
    parallel._pool.shutdown(wait=True)  # all that was asked of the workers is done
    largest = (9 + ahead) * SAMPLES
    assert largest - (GROUP - 1) * SAMPLES <= len(watched.texts) <= largest, "as far as allowed, to a whole group"
    assert sorted(watched.texts) == sorted(
        text for index in range(len(watched.texts) // SAMPLES) for text in parallel.texts(index)
    )


def test_nothing_is_tokenized_in_the_thread_that_asks(
    corpus: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    regions, counts = [], []
    monkeypatch.setattr(marks, "region", lambda name: regions.append(name) or marks._NULL)
    monkeypatch.setattr(marks, "count", lambda name, amount: counts.append((name, amount)))
    watched = Watched(tokenizer)
    parallel = ParallelChunks(corpus, watched, TOKENS, SAMPLES, workers=2)
    for index in range(3):
        parallel.ids(index)
    parallel.close()
    assert watched.threads
    assert all(name.startswith("tokenize") for name in watched.threads), watched.threads
    assert regions == ["data"] * 3
    assert counts == [("tokenized_samples", SAMPLES)] * 3


@pytest.mark.parametrize("fault", [RuntimeError("no\nmemory"), MemoryError(), SystemExit(3)])
def test_the_death_of_a_worker_is_one_line_and_no_hang(
    corpus: Corpus, tokenizer: Tokenizer, capfd: pytest.CaptureFixture[str], fault: BaseException
) -> None:
    watched = Watched(tokenizer)
    parallel = ParallelChunks(corpus, watched, TOKENS, SAMPLES, workers=2, ahead=2)
    parallel.ids(0)
    watched.fault = fault
    with pytest.raises(TrainerError) as caught:
        all_of(parallel, range(1, 9))
    assert re.match(rf"chunk \d+: its tokenizing worker failed: {type(fault).__name__}: \w", str(caught.value))
    assert "\n" not in str(caught.value)
    with pytest.raises(TrainerError):
        parallel.ids(9)
    parallel.close()
    assert not tokenizing()
    assert capfd.readouterr() == ("", "")


def test_close_drops_what_waits_and_leaves_no_thread(corpus: Corpus, tokenizer: Tokenizer) -> None:
    watched, before = Watched(tokenizer), all_threads()
    parallel = ParallelChunks(corpus, watched, TOKENS, SAMPLES, workers=3, ahead=100)
    watched.go_on.clear()
    parallel._submit(0)
    started = all_threads() - before
    assert len(parallel._pending) > 90
    release_when_dropped(parallel, watched)
    parallel.close()
    assert len(watched.texts) <= GROUP * SAMPLES, "no more than the group that was begun"
    assert len(started) == 4, "ours and three of the library"
    assert eventually(lambda: not started & all_threads())
    parallel.close()


def test_verbose_says_what_a_worker_took_and_what_was_waited(
    corpus: Corpus, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    parallel = ParallelChunks(corpus, tokenizer, TOKENS, SAMPLES, verbose=True)
    parallel.ids(0)
    parallel.close()
    line = capsys.readouterr().out
    assert line.startswith(f"Tokenized in parallel {SAMPLES} samples in "), line
    assert "ms per sample), waited " in line


def test_a_chunk_of_too_few_tokens_is_reported_where_it_is_asked_for(corpus: Corpus, tokenizer: Tokenizer) -> None:
    tiny = Corpus("tiny", "a " * 60 + "\u4e00" * 12 + " b" * 60, "", 1)
    chunks, parallel = (
        Chunks(tiny, tokenizer, 1, 1, batch=True),
        ParallelChunks(tiny, tokenizer, 1, 1, workers=1),
    )

    def outcome(source: Chunks | ParallelChunks, index: int) -> object:
        try:
            return source.ids(index).tolist()
        except TrainerError as error:
            return str(error)

    result = [outcome(chunks, index) for index in range(40)]
    assert any(isinstance(item, str) for item in result)
    assert [outcome(parallel, index) for index in range(40)] == result
    parallel.close()


def test_a_core_is_left_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, workers in ((1, 1), (2, 1), (3, 2), (128, 4)):
        monkeypatch.setattr("reference_trainer.lm.parallel_tokenize.available_cores", lambda cores=cores: cores)
        assert default_workers() == workers


ENDLESS = """
import sys
from pathlib import Path
from reference_trainer.program import guarded
from reference_trainer.errors import TrainerError
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.parallel_tokenize import ParallelChunks
from reference_trainer.lm.tokenizer import train_or_load

def train():
    corpus = load_corpus(Path(sys.argv[1]))
    chunks = ParallelChunks(corpus, train_or_load(corpus, 256), 400, 4, workers=2)
    index = 0
    while True:
        chunks.ids(index)
        index += 1
        if index == 50:
            print("under way", flush=True)
        if index == int(sys.argv[2]):
            raise TrainerError("the end")

sys.exit(guarded(train))
"""


@pytest.mark.parametrize(("chunks", "code", "message"), [(0, 130, "interrupted\n"), (60, 2, "error: the end\n")])
def test_a_trainer_that_ends_without_closing_it(
    corpus: Corpus, corpus_file: Path, chunks: int, code: int, message: str
) -> None:
    """By Ctrl-C or by an exception: no traceback of a worker, and no thread keeps the process alive."""
    started = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(corpus_file), str(chunks)],
        cwd=ROOT,
        env=os.environ.copy(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "under way\n"
    if not chunks:
        started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert (started.returncode, err) == (code, message)
