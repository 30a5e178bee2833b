"""Chunks tokenized in the background: the same ids, no more than allowed ahead, no hang and nothing left behind."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import Chunks
from reference_trainer.lm.corpus import Corpus
from reference_trainer.lm.parallel_tokenize import GROUP, ParallelChunks, default_workers
from reference_trainer.lm.tokenizer import Tokenizer
from tests.reference_trainer.lm.threads import all_threads, eventually
from tests.reference_trainer.processes import started_until

TOKENS, SAMPLES = 400, 4


class Watched:
    """A tokenizer that notes what it is asked for, and may be held up or broken; the real one does the work."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.chars_per_token = tokenizer.chars_per_token
        self.texts: list[str] = []
        self.threads: set[str] = set()
        self.go_on = threading.Event()
        self.go_on.set()
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


Made = Callable[..., ParallelChunks]


@pytest.fixture
def watched(tokenizer: Tokenizer) -> Iterator[Watched]:
    created = Watched(tokenizer)
    yield created
    created.go_on.set()  # a test that fails while a worker is held up must not keep the tests from ending


@pytest.fixture
def made(corpus: Corpus, watched: Watched) -> Iterator[Made]:
    """Makes chunks that a watched tokenizer tokenizes, and closes them."""
    with ExitStack() as opened:

        def make(text: Corpus = corpus, tokens: int = TOKENS, samples: int = SAMPLES, **more: Any) -> ParallelChunks:
            return opened.enter_context(closing(ParallelChunks(text, watched, tokens, samples, **more)))

        yield make
        watched.go_on.set()


@pytest.fixture
def plain(corpus: Corpus, tokenizer: Tokenizer) -> Chunks:
    return Chunks(corpus, tokenizer, TOKENS, SAMPLES, batch=False)


def release_when_dropped(parallel: ParallelChunks, watched: Watched) -> None:
    """Let the worker go on once `close`, which waits for it, has dropped the last of what waits."""
    last = list(parallel._pending.values())[-1]

    def release() -> None:
        eventually(last.cancelled)
        watched.go_on.set()

    threading.Thread(target=release).start()


def tokenizing() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tokenize")]


@pytest.mark.parametrize(("workers", "ahead"), [(1, 0), (2, 1), (2, 16), (3, 7)])
def test_the_same_ids_over_the_end_of_the_text(
    corpus: Corpus, plain: Chunks, made: Made, workers: int, ahead: int
) -> None:
    parallel = made(workers=workers, ahead=ahead)
    assert parallel.chars_per_sample == plain.chars_per_sample
    epoch = len(corpus.text) // (plain.chars_per_sample * SAMPLES)
    for index in range(2 * epoch):
        ids, expected = parallel.ids(index), plain.ids(index)
        assert ids.dtype == expected.dtype == np.int32
        assert np.array_equal(ids, expected), index
        assert parallel.texts(index) == plain.texts(index)


def test_any_order_is_right_and_so_is_after_the_close(plain: Chunks, made: Made) -> None:
    parallel = made(workers=2, ahead=5)
    for index in (3, 4, 4, 0, 30, 33, 2, 3, 9):
        assert np.array_equal(parallel.ids(index), plain.ids(index)), index
    parallel.close()
    assert np.array_equal(parallel.ids(4), plain.ids(4))


def test_nothing_is_kept_or_done_of_what_is_no_longer_next(watched: Watched, made: Made) -> None:
    parallel = made(workers=1, ahead=8)
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


def test_after_the_close_what_was_dropped_is_tokenized(plain: Chunks, watched: Watched, made: Made) -> None:
    parallel = made(workers=1, ahead=100)
    watched.go_on.clear()
    parallel._submit(0)
    release_when_dropped(parallel, watched)
    parallel.close()
    assert np.array_equal(parallel.ids(60), plain.ids(60))


@pytest.mark.parametrize("ahead", [0, 1, 3, 16])
def test_the_look_ahead_is_bounded(watched: Watched, made: Made, ahead: int) -> None:
    parallel = made(workers=2, ahead=ahead)
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
    watched: Watched, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    regions, counts = [], []
    monkeypatch.setattr(marks, "region", lambda name: regions.append(name) or nullcontext())
    monkeypatch.setattr(marks, "count", lambda name, amount: counts.append((name, amount)))
    parallel = made(workers=2)
    for index in range(3):
        parallel.ids(index)
    parallel.close()
    assert watched.threads
    assert all(name.startswith("tokenize") for name in watched.threads), watched.threads
    assert regions == ["data"] * 3
    assert counts == [("tokenized_samples", SAMPLES)] * 3


@pytest.mark.parametrize("fault", [RuntimeError("no\nmemory"), MemoryError(), SystemExit(3)])
def test_the_death_of_a_worker_is_one_line_and_no_hang(
    watched: Watched, made: Made, capfd: pytest.CaptureFixture[str], fault: BaseException
) -> None:
    parallel = made(workers=2, ahead=2)
    parallel.ids(0)
    watched.fault = fault
    with pytest.raises(TrainerError) as caught:
        [parallel.ids(index) for index in range(1, 9)]
    assert re.match(rf"chunk \d+: its tokenizing worker failed: {type(fault).__name__}: \w", str(caught.value))
    assert "\n" not in str(caught.value)
    with pytest.raises(TrainerError):
        parallel.ids(9)
    parallel.close()
    assert not tokenizing()
    assert capfd.readouterr() == ("", "")


def test_close_drops_what_waits_and_leaves_no_thread(watched: Watched, made: Made) -> None:
    before = all_threads()
    parallel = made(workers=3, ahead=100)
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


def test_verbose_says_what_a_worker_took_and_what_was_waited(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made(verbose=True).ids(0)
    line = capsys.readouterr().out
    assert line.startswith(f"Tokenized in parallel {SAMPLES} samples in "), line
    assert "ms per sample), waited " in line


def test_a_chunk_of_too_few_tokens_is_reported_where_it_is_asked_for(tokenizer: Tokenizer, made: Made) -> None:
    tiny = Corpus("tiny", "a " * 60 + "\u4e00" * 12 + " b" * 60, "", 1)
    chunks, parallel = Chunks(tiny, tokenizer, 1, 1, batch=True), made(tiny, 1, 1, workers=1)

    def outcome(source: Chunks | ParallelChunks, index: int) -> object:
        try:
            return source.ids(index).tolist()
        except TrainerError as error:
            return str(error)

    result = [outcome(chunks, index) for index in range(40)]
    assert any(isinstance(item, str) for item in result)
    assert [outcome(parallel, index) for index in range(40)] == result


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
@pytest.mark.usefixtures("own_cache")
def test_a_trainer_that_ends_without_closing_it(corpus_file: Path, chunks: int, code: int, message: str) -> None:
    """By Ctrl-C or by an exception: no traceback of a worker, and no thread keeps the process alive."""
    with started_until("under way", "-c", ENDLESS, corpus_file, chunks) as process:
        if not chunks:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, message)
