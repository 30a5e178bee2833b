"""Measures the ways of tokenizing a text side by side, for `python -m profiler diagnose-tokenization`."""

from __future__ import annotations

import argparse
import hashlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText, Chunks, TokenStream
from reference_trainer.lm.corpus import Corpus, load_corpus
from reference_trainer.lm.model import preset
from reference_trainer.lm.parallel_tokenize import ParallelChunks, available_cores
from reference_trainer.lm.settings import Settings
from reference_trainer.lm.shard_writer import ensure_shards
from reference_trainer.lm.shards import ShardChunks
from reference_trainer.lm.tokenizer import Tokenizer, train_or_load
from reference_trainer.program import flag

SCHEMA: Final = "tokenization/2"
"""Schema of the JSON document. Its number rises when a key changes its meaning or is removed."""
MOST_CHARS: Final = 20_000_000
"""Only the beginning of a longer corpus is measured: its shards are written to the user's cache."""
LEAST_TOKENS: Final = 16
"""Average tokens of a chunk: a chunk of one token has nothing to predict."""
SECONDS: Final = 10.0
ROUNDS: Final = 15
LEAST_ROUNDS: Final = 5
"""With fewer rounds an interval says little."""
LEAST_CHUNKS: Final = 128
"""Chunks of a round: so many that what background workers tokenize in vain at its end counts little."""
CHECKED: Final = 2
"""Chunks of each way that are compared with the first way's, which warms them up too."""
CONFIDENCE: Final = 0.95


class Way(NamedTuple):
    """One way. Its source is opened before each round, untimed, and closed in the time of that round.

    A chunk is here a group of samples: of the cut into chunks of one length nothing is measured.
    """

    name: str
    library: str
    how: str
    """A short description."""
    threads: int
    open: Callable[[], TokenStream]
    tokenizes: bool = True
    """False: the text was tokenized before."""


_LISTED: Final = ("name", "library", "how", "threads", "tokenizes")
"""Fields of a way that stand in the document."""


class Round(NamedTuple):
    """The time of one way for the chunks of one round."""

    seconds: float
    cpu_s: float
    """CPU time of all threads of this process."""
    samples: int
    tokens: int


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure what the command line asks for; the document of schema SCHEMA.

    :raises TrainerError: an option or the text is no good.
    """
    for name in ("vocabulary", "samples", "sample_chars", "workers"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise TrainerError(f"{flag(name)} {value}: must be at least 1")
    seconds = SECONDS if arguments.seconds is None else arguments.seconds
    if not 0 < seconds < float("inf"):
        raise TrainerError(f"--seconds {seconds}: must be a number of seconds above 0")
    corpus = load_corpus(arguments.corpus)
    if len(corpus.text) > MOST_CHARS:
        beginning = corpus.text[:MOST_CHARS]
        corpus = replace(corpus, text=beginning, sha256=hashlib.sha256(beginning.encode()).hexdigest())
    vocabulary = arguments.vocabulary or preset(arguments.preset or Settings().preset).vocabulary
    samples = arguments.samples or Settings().samples_per_chunk
    text = _chunked_text(corpus, train_or_load(corpus, vocabulary), samples, arguments.sample_chars)
    all_ways = tuple(ways(text, arguments.workers or available_cores()))
    results = measure(all_ways, text.samples_per_chunk, seconds)
    return {
        "schema": SCHEMA,
        "corpus": text.corpus.name,
        "corpus_sha256": text.corpus.sha256,
        "corpus_chars": len(text.corpus.text),
        "tokenizer": text.tokenizer.fingerprint,
        "vocabulary": text.tokenizer.vocab_size,
        "samples_per_chunk": text.samples_per_chunk,
        "sample_chars": text.sample_chars,
        "cores": available_cores(),
        "rounds": max(measured["ratio"]["n"] for measured in results.values()),
        "baseline": all_ways[0].name,
        "ways": [
            {**{field: getattr(way, field) for field in _LISTED}, "measured": results[way.name]} for way in all_ways
        ],
    }


def _chunked_text(corpus: Corpus, tokenizer: Tokenizer, samples: int, sample_chars: int | None) -> ChunkedText:
    tokens = Settings().tokens_per_chunk
    if sample_chars is not None:
        tokens = round(sample_chars * samples / tokenizer.chars_per_token)
        if tokens < LEAST_TOKENS:
            raise TrainerError(
                f"--sample-chars {sample_chars}: {samples} of them have about {tokens} tokens, "
                f"a chunk needs {LEAST_TOKENS}: raise it, or --samples"
            )
    return ChunkedText(corpus, tokenizer, tokens, samples)


def ways(text: ChunkedText, workers: int) -> Iterator[Way]:
    """All ways; the first is the baseline. Some use as many threads as `workers`."""
    library = f"SentencePiece {version('sentencepiece')}"
    yield Way("sequential", library, "one call a sample", 1, lambda: Chunks(text, batch=False))
    yield Way("batch", library, "one call a chunk", 1, lambda: Chunks(text, batch=True))
    if workers > 1:
        how = "one call a chunk, shared out"
        yield Way("threaded batch", library, how, workers, lambda: Chunks(text, batch=True, threads=workers))
    how = "in the background, the next chunks"
    yield Way("parallel", library, how, workers, lambda: ParallelChunks(text, workers=workers))
    shards = ensure_shards(text)
    yield Way("pre-tokenized", "memory-mapped shards", "read from files", 1, lambda: ShardChunks(shards, text), False)


def measure(ways: Sequence[Way], samples_per_chunk: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Figures of all ways by name, in about so many seconds."""
    expected = _first_chunks(ways[0])
    for way in ways[1:]:
        if not all(map(np.array_equal, expected, _first_chunks(way))):
            raise TrainerError(f"{way.name} and {ways[0].name} give other ids for the first chunks: report this")
    a_chunk = sum(run_round(way, samples_per_chunk, 0, CHECKED).seconds for way in ways) / CHECKED
    chunks = max(LEAST_CHUNKS, int(seconds / ROUNDS / a_chunk))
    until = time.perf_counter() + seconds
    by_way: dict[str, list[Round]] = {way.name: [] for way in ways}
    done = 0
    while done < LEAST_ROUNDS or time.perf_counter() < until:
        for way in ways if done % 2 == 0 else reversed(ways):  # so that none always comes first
            by_way[way.name].append(run_round(way, samples_per_chunk, done * chunks, chunks))
        done += 1
    return {name: summary(rounds, by_way[ways[0].name]) for name, rounds in by_way.items()}


def _first_chunks(way: Way) -> list[np.ndarray]:
    with closing(way.open()) as source:
        return [source.group(number) for number in range(CHECKED)]


def run_round(way: Way, samples_per_chunk: int, first: int, chunks: int) -> Round:
    """Time the chunks from `first` on, together with the start and the end of background workers."""
    with closing(way.open()) as source:
        groups = [number % source.whole_groups for number in range(first, first + chunks)]
        cpu, began = time.process_time(), time.perf_counter()
        tokens = sum(len(source.group(number)) for number in groups)
        source.close()
        return Round(time.perf_counter() - began, time.process_time() - cpu, chunks * samples_per_chunk, tokens)


def summary(rounds: Sequence[Round], first: Sequence[Round]) -> dict[str, Any]:
    """Figures of a way, from its rounds and those of the baseline."""
    figures = {
        "samples_per_s": [r.samples / r.seconds for r in rounds],
        "tokens_per_s": [r.tokens / r.seconds for r in rounds],
        "ms_per_sample": [r.seconds * 1e3 / r.samples for r in rounds],
        "cpu_ms_per_sample": [r.cpu_s * 1e3 / r.samples for r in rounds],
    }
    spreads = {
        name: {"median": statistics.median(values), "low": min(values), "high": max(values)}
        for name, values in figures.items()
    }
    ratios = [(r.samples / r.seconds) / (f.samples / f.seconds) for r, f in zip(rounds, first, strict=True)]
    return {**spreads, "ratio": mean_ratio(ratios)}


def mean_ratio(ratios: Sequence[float]) -> dict[str, Any]:
    """The geometric mean of the ratios of paired rounds, with its 95% t interval."""
    from scipy.special import stdtrit

    logs = [math.log(ratio) for ratio in ratios]
    mean, n = statistics.fmean(logs), len(logs)
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * statistics.stdev(logs) / math.sqrt(n)
    low, high = math.exp(mean - half), math.exp(mean + half)
    return {"value": math.exp(mean), "low": low, "high": high, "n": n, "different": not low <= 1 <= high}
