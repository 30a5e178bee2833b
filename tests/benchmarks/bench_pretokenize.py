"""Tokens/s of `pretokenize` with two workers over one, in interleaved pairs; and what a chunk from shards costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reference_trainer.lm.chunks import ChunkedText, Chunks
from reference_trainer.lm.corpus import Corpus, load_corpus
from reference_trainer.lm.model import PRESETS
from reference_trainer.lm.shard_writer import ensure_shards, write_shards
from reference_trainer.lm.shards import SHARD_TOKENS, ShardChunks
from reference_trainer.lm.tokenizer import Tokenizer, train_or_load
from tests.benchmarks.measure import ratio

PAIRS = int(os.environ.get("PAIRS", "11"))
TIMES = 40  # the default corpus so many times over: alone it is some milliseconds of work
TOKENS, SAMPLES = 3000, 8  # of a chunk, as the trainer's defaults
BAR = 1.7
BUSY = 0.1  # cores that others may use: two workers cannot have what is not there
CHUNKS = 300


def others(work: Callable[[], object]) -> float:
    """Cores that other programs kept busy while this worked: on a busy machine a ratio is of what they left."""
    began, used, busy = time.perf_counter(), _own(), _busy()
    work()
    return (_busy() - busy - (_own() - used)) / (time.perf_counter() - began)


def _own() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy() -> float:
    fields = Path("/proc/stat").read_text(encoding="utf-8").split(maxsplit=9)[1:9]
    user, nice, system, _, _, *interrupts = map(int, fields)
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def written(folder: Path, corpus: Corpus, tokenizer: Tokenizer, workers: int) -> float:
    """Tokens/s of cutting, tokenizing and writing the corpus."""
    began = time.perf_counter()
    index = write_shards(folder, ChunkedText(corpus, tokenizer, TOKENS, SAMPLES), SHARD_TOKENS, workers=workers)
    return index.tokens / (time.perf_counter() - began)


def command(corpus: Path, out: Path, workers: int) -> float:
    """Seconds of the whole command: start, reading, hashing and cutting the corpus, and what `written` does."""
    began = time.perf_counter()
    options = ["--corpus", str(corpus), "--out", str(out), "--workers", str(workers)]
    subprocess.run(
        [sys.executable, "-m", "reference_trainer.lm.pretokenize", *options], check=True, capture_output=True
    )
    return time.perf_counter() - began


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_two_workers_over_one(preset: str, tmp_path: Path) -> None:
    corpus = load_corpus()
    tokenizer = train_or_load(corpus, PRESETS[preset].vocabulary)
    long = replace(corpus, text=corpus.text * TIMES)
    speeds: dict[int, list[float]] = {1: [], 2: []}

    def measure() -> None:
        for pair in range(PAIRS):
            for workers in sorted(speeds, reverse=bool(pair % 2)):
                speeds[workers].append(written(tmp_path / f"{pair}-{workers}", long, tokenizer, workers))

    written(tmp_path / "warm", long, tokenizer, 2)
    busy = others(measure)
    seen = ratio(speeds[2], speeds[1])
    print(
        f"\n{preset}, M tokens/s at best: {max(speeds[1]) / 1e6:.1f} by one worker, {max(speeds[2]) / 1e6:.1f} by two; "
        f"ratio {seen}; other programs used {busy:.2f} cores meanwhile"
    )
    if seen.value < BAR and busy > BUSY:
        pytest.skip(f"inconclusive: {seen}, but other programs used {busy:.2f} cores")
    assert seen.value >= BAR, f"two workers are not worth it: {seen}"


def test_whole_command(tmp_path: Path) -> None:
    """Reading and hashing the text is one thread's work: the gain of the command as a whole is smaller."""
    path = tmp_path / "long.txt"
    path.write_text(load_corpus().text * TIMES, encoding="utf-8")
    times: dict[int, list[float]] = {1: [], 2: []}
    command(path, tmp_path / "warm", 2)
    for pair in range(PAIRS):
        for workers in sorted(times, reverse=bool(pair % 2)):
            times[workers].append(command(path, tmp_path / f"{pair}-{workers}", workers))
    seen = ratio(times[1], times[2])
    print(f"\nwhole command: {min(times[1]):.2f} s by one worker, {min(times[2]):.2f} s by two at best; ratio {seen}")
    assert seen.high > 1, f"two workers are slower than one: {seen}"


def test_chunk_from_shards_over_tokenized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    corpus = load_corpus()
    text = ChunkedText(corpus, train_or_load(corpus, PRESETS["tiny"].vocabulary), TOKENS, SAMPLES)
    chunks, shards = Chunks(text, batch=True), ShardChunks(ensure_shards(text), text)
    times: dict[str, list[float]] = {"tokenized": [], "shards": []}
    for _ in range(PAIRS):
        for name, source in (("tokenized", chunks), ("shards", shards)):
            began = time.perf_counter()
            for index in range(CHUNKS):
                source.ids(index)
            times[name].append((time.perf_counter() - began) / CHUNKS)
    seen = ratio(times["tokenized"], times["shards"])
    print(
        f"\na chunk: {min(times['tokenized']) * 1e6:.0f} µs tokenized in one call, "
        f"{min(times['shards']) * 1e6:.1f} µs from shards at best; ratio {seen}"
    )
    assert seen.low > 10, f"reading a chunk costs too much: {seen}"
