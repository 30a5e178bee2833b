"""Tokens/s of `pretokenize` with two workers over one, in interleaved pairs; and what a chunk from shards costs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from reference_trainer.lm.chunks import ChunkedText, Chunks, Source
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.model import PRESETS
from reference_trainer.lm.shard_writer import ensure_shards, write_shards
from reference_trainer.lm.shards import SHARD_TOKENS, ShardChunks
from reference_trainer.lm.tokenizer import train_or_load
from tests.benchmarks.measure import check_two_workers, interleaved, ratio, seconds, two_cores

PAIRS = int(os.environ.get("PAIRS", "11"))
TIMES = 40  # the default corpus so many times over: alone it is some milliseconds of work
TOKENS, SAMPLES = 3000, 8  # of a chunk, as the trainer's defaults
CHUNKS = 300


@two_cores
@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_two_workers_over_one(preset: str, tmp_path: Path) -> None:
    corpus = load_corpus()
    tokenizer = train_or_load(corpus, PRESETS[preset].vocabulary)
    text = ChunkedText(replace(corpus, text=corpus.text * TIMES), tokenizer, TOKENS, SAMPLES)

    def write(workers: int, pair: int) -> float:
        """Seconds for cutting, tokenizing and writing the corpus."""
        return seconds(lambda: write_shards(tmp_path / f"{pair}-{workers}", text, SHARD_TOKENS, workers=workers))

    write(2, -1)
    check_two_workers(preset, lambda: interleaved({count: partial(write, count) for count in (1, 2)}, PAIRS))


def test_whole_command(tmp_path: Path) -> None:
    """Reading and hashing the text is the work of one thread, so the gain of the whole command is smaller."""
    path = tmp_path / "long.txt"
    path.write_text(load_corpus().text * TIMES, encoding="utf-8")

    def run(workers: int, pair: int) -> float:
        options = ["--dataset", str(path), "--output", str(tmp_path / f"{pair}-{workers}"), "--workers", str(workers)]
        command = [sys.executable, "-m", "reference_trainer.lm.pretokenize", *options]
        return seconds(lambda: subprocess.run(command, check=True, capture_output=True))

    run(2, -1)
    times = interleaved({count: partial(run, count) for count in (1, 2)}, PAIRS)
    seen = ratio(times[1], times[2])
    print(f"\nwhole command: {min(times[1]):.2f} s by one worker, {min(times[2]):.2f} s by two at best; ratio {seen}")
    assert seen.high > 1, f"two workers are slower than one: {seen}"


def test_chunk_from_shards_over_tokenized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    corpus = load_corpus()
    text = ChunkedText(corpus, train_or_load(corpus, PRESETS["tiny"].vocabulary), TOKENS, SAMPLES)

    def read(source: Source, _: int) -> float:
        return seconds(lambda: [source.ids(index) for index in range(CHUNKS)]) / CHUNKS

    sources = {"tokenized": Chunks(text, batch=True), "shards": ShardChunks(ensure_shards(text), text)}
    times = interleaved({name: partial(read, source) for name, source in sources.items()}, PAIRS)
    seen = ratio(times["tokenized"], times["shards"])
    print(
        f"\na chunk: {min(times['tokenized']) * 1e6:.0f} µs tokenized in one call, "
        f"{min(times['shards']) * 1e6:.1f} µs from shards at best; ratio {seen}"
    )
    assert seen.low > 10, f"reading a chunk costs too much: {seen}"
