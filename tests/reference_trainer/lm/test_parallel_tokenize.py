"""Chunks tokenized in the background: the same ids, no more than allowed ahead, no hang and nothing left behind."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText, Chunks
from reference_trainer.lm.parallel_tokenize import AHEAD, TASK_GROUPS, ParallelChunks, default_workers
from reference_trainer.lm.tokenizer import Tokenizer
from tests.reference_trainer.lm.sources import assert_same
from tests.reference_trainer.lm.threads import all_threads, eventually
from tests.reference_trainer.processes import started_until

SAMPLES = 4


class Watched:
    """A tokenizer that records what is requested, and can be held up or fail; the real one does the work."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.chars_per_token = tokenizer.chars_per_token
        self.texts: list[str] = []
        self.threads: set[str] = set()
        self.go_on = threading.Event()
        self.go_on.set()
        self.fault: BaseException | None = None
        self._tokenizer = tokenizer

    def encode_arrays(self, texts: list[str], threads: object) -> list[np.ndarray]:
        self.texts += texts
        self.threads.add(threading.current_thread().name)
        assert self.go_on.wait(30)
        if self.fault is not None:
            raise self.fault
        return self._tokenizer.encode_arrays(texts, threads)


Make = Callable[..., ParallelChunks]


@pytest.fixture
def watched(tokenizer: Tokenizer) -> Watched:
    return Watched(tokenizer)


@pytest.fixture
def make(text: ChunkedText, watched: Watched) -> Iterator[Make]:
    """Makes chunks that a watched tokenizer tokenizes, and closes them."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            closing(ParallelChunks(replace(text, tokenizer=watched), **options))
        )
        watched.go_on.set()  # a test that fails while a worker is held up must end


def texts(text: ChunkedText, tasks: range) -> list[str]:
    """The samples of these tasks."""
    groups = range(tasks.start * TASK_GROUPS, tasks.stop * TASK_GROUPS)
    return [sample for number in groups for sample in text.samples.group(number)]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_same_ids_over_the_end_of_the_text_and_in_any_order(text: ChunkedText, make: Make, workers: int) -> None:
    plain, parallel = Chunks(text, batch=False), make(workers=workers)
    epoch = text.samples.groups
    assert not assert_same(plain, parallel, (*range(2 * epoch), 3, 4, 4, 0, 30, 33, 2, 3, 9))
    parallel.close()
    assert_same(plain, parallel, [4, 60])


def test_only_the_tasks_ahead_are_done(text: ChunkedText, watched: Watched, make: Make) -> None:
    parallel = make(workers=2)
    for number in range(9):
        parallel.group(number)
    parallel._pool.shutdown(wait=True)  # everything that was submitted is done
    assert watched.texts == texts(text, range(2 + AHEAD + 1))


def test_a_jump_drops_what_is_no_longer_next(text: ChunkedText, watched: Watched, make: Make) -> None:
    parallel = make(workers=1)
    watched.go_on.clear()
    parallel._submit(2)
    assert eventually(lambda: watched.texts == texts(text, range(2, 3))), "the worker is held up in the first task"
    parallel._submit(5)  # keeps the tasks 5 and 6 of 2 to 6
    parallel._submit(10)
    watched.go_on.set()
    parallel._pool.shutdown(wait=True)
    assert watched.texts == texts(text, range(2, 3)) + texts(text, range(10, 10 + AHEAD + 1))


def test_the_tasks_ahead_begin_again_where_the_text_ends(text: ChunkedText, watched: Watched, make: Make) -> None:
    parallel, tasks = make(workers=1), -(-text.samples.groups // TASK_GROUPS)
    parallel._submit(tasks - 2)
    parallel._pool.shutdown(wait=True)
    assert watched.texts == texts(text, range(tasks - 2, tasks)) + texts(text, range(AHEAD - 1))


def test_nothing_is_tokenized_in_the_requesting_thread(
    watched: Watched, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    regions, counts = [], []
    monkeypatch.setattr(marks, "region", lambda name: regions.append(name) or nullcontext())
    monkeypatch.setattr(marks, "count", lambda name, amount: counts.append((name, amount)))
    parallel = make(workers=2)
    for number in range(3):
        parallel.group(number)
    parallel.close()
    assert watched.threads
    assert all(name.startswith("tokenize") for name in watched.threads), watched.threads
    assert not regions
    assert counts == [("tokenized_samples", SAMPLES)] * 3


@pytest.mark.parametrize("fault", [RuntimeError("no\nmemory"), MemoryError(), SystemExit(3)])
def test_a_worker_that_fails_is_one_line_and_no_hang(
    watched: Watched, make: Make, capfd: pytest.CaptureFixture[str], fault: BaseException
) -> None:
    parallel = make(workers=2)
    parallel.group(0)
    watched.fault = fault
    for group in (40, 40, 41):
        with pytest.raises(TrainerError) as caught:
            parallel.group(group)
        message = rf"group {group} of samples: its tokenizing worker failed: {type(fault).__name__}: \w[^\n]*"
        assert re.fullmatch(message, str(caught.value))
    parallel.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("tokenize")]
    assert capfd.readouterr() == ("", "")


def test_close_drops_what_waits_and_leaves_no_thread(text: ChunkedText, watched: Watched, make: Make) -> None:
    before = all_threads()
    parallel = make(workers=3)
    watched.go_on.clear()
    parallel._submit(0)
    started, last = all_threads() - before, parallel._pending[AHEAD]
    assert len(started) == 4, "ours and three of the library"
    # `close` waits for the worker, which continues when `close` has dropped the last of what waits
    threading.Thread(target=lambda: (eventually(last.cancelled), watched.go_on.set())).start()
    parallel.close()
    assert watched.texts == texts(text, range(1)), "no more than the task that was begun"
    assert eventually(lambda: not started & all_threads())
    parallel.close()
    assert_same(Chunks(text, batch=False), parallel, [AHEAD * TASK_GROUPS])  # dropped, and requested again


def test_verbose_prints_what_a_worker_took_and_the_wait(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make(verbose=True).group(0)
    line = capsys.readouterr().out
    assert line.startswith(f"Tokenized in parallel {SAMPLES} samples in "), line
    assert "ms per sample), waited " in line


def test_a_core_is_left_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, workers in ((1, 1), (2, 1), (3, 2), (128, 4)):
        monkeypatch.setattr("reference_trainer.lm.parallel_tokenize.available_cores", lambda cores=cores: cores)
        assert default_workers() == workers


ENDLESS = """
import sys
from pathlib import Path
from reference_trainer.program import guarded
from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.parallel_tokenize import ParallelChunks
from reference_trainer.lm.tokenizer import train_or_load

def train():
    corpus = load_corpus(Path(sys.argv[1]))
    chunks = ParallelChunks(ChunkedText(corpus, train_or_load(corpus, 256), 400, 4), workers=2)
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
