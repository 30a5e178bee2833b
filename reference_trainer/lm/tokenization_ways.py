"""The ways of tokenizing that are measured side by side, and their interleaved rounds."""

from __future__ import annotations

import importlib.util
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText, Chunks, TokenStream
from reference_trainer.lm.parallel_tokenize import ParallelChunks
from reference_trainer.lm.shard_writer import ensure_shards
from reference_trainer.lm.shards import ShardChunks
from reference_trainer.lm.tokenizer import TRAINING_CHARS

if TYPE_CHECKING:
    from tokenizers import Tokenizer


OURS: Final = "SentencePiece"
SHARDS: Final = "memory-mapped shards"
THEIRS: Final = "Hugging Face tokenizers"
MISSING = "tokenizers is not installed: pip install tokenizers"
_UNKNOWN = "<unk>"
_SHARED_THREADS = "RAYON_NUM_THREADS"  # of a batch; the library reads it when it first makes threads


@dataclass(frozen=True, slots=True)
class Way:
    """One way. Its source is opened before each round, untimed, and closed in the time of that round.

    A chunk is here a group of samples: of the cut into chunks of one length nothing is measured.
    """

    name: str
    library: str
    how: str
    """A short description."""
    threads: int
    open: Callable[[], TokenStream] | None
    """None: it cannot be measured here."""
    missing: str = ""
    """Why it cannot be measured."""
    same: bool = True
    """Its ids are those of the first way."""
    tokenizes: bool = True
    """False: the text was tokenized before."""


def ways(text: ChunkedText, workers: int) -> Iterator[Way]:
    """All ways; the first is the baseline.

    :param workers: threads of the ways that use several.
    :raises TrainerError: the text is too short for a chunk, or shards cannot be written.
    """
    sources: list[tuple[str, str, int, TokenStream]] = [
        ("sequential", "one call a sample", 1, Chunks(text, batch=False)),
        ("batch", "one call a chunk", 1, Chunks(text, batch=True)),
        ("parallel", "in the background, the next chunks", workers, ParallelChunks(text, workers=workers)),
    ]
    if workers > 1:
        threaded = Chunks(text, batch=True, threads=workers)
        sources.insert(2, ("threaded batch", "one call a chunk, shared out", workers, threaded))
    for name, how, threads, source in sources:
        yield Way(name, f"{OURS} {version('sentencepiece')}", how, threads, _opener(source))
    yield Way(
        "pre-tokenized", SHARDS, "read from files", 1, lambda: ShardChunks(ensure_shards(text), text), tokenizes=False
    )
    yield from _theirs(text, workers)


def _opener(source: TokenStream) -> Callable[[], TokenStream]:
    return lambda: source


def _theirs(text: ChunkedText, workers: int) -> Iterator[Way]:
    kinds = (("one by one", "one call a sample", 1, False), ("batch", "one call a chunk", workers, True))
    if not has_tokenizers():
        for name, how, threads, _ in kinds:
            yield Way(f"Hugging Face {name}", THEIRS, how, threads, None, MISSING, same=False)
        return
    texts = list(text.samples)
    model = train_unigram(texts, text.tokenizer.vocab_size, workers)
    library = f"{THEIRS} {version('tokenizers')}"
    for name, how, threads, batch in kinds:
        source = HuggingFaceChunks(model, text, batch=batch)
        yield Way(f"Hugging Face {name}", library, how, threads, _opener(source), same=False)


ROUNDS: Final = 15
LEAST_ROUNDS: Final = 5
"""With fewer rounds an interval says little."""
LEAST_CHUNKS: Final = 128
"""Chunks of a round: so many that what background workers tokenize in vain at its end counts little."""
CHECKED: Final = 2
"""Chunks of each way that are compared with the first way's, which warms them up too."""
CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Round:
    """The time of one way for the chunks of one round."""

    seconds: float
    cpu_s: float
    """CPU time of all threads of this process."""
    samples: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range over rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """Geometric mean of the rounds' ratios with its 95% t interval."""

    value: float
    low: float
    high: float
    n: int
    """Rounds."""
    different: bool
    """False: the interval contains 1."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way's figures."""

    samples_per_s: Spread
    tokens_per_s: Spread
    ms_per_sample: Spread
    cpu_ms_per_sample: Spread
    ratio: Ratio
    """Samples per second over those of the first way."""


def measure(ways: Sequence[Way], samples_per_chunk: int, seconds: float) -> dict[str, Measured]:
    """Figures of all ways that can be measured, by name, in about so many seconds.

    :raises TrainerError: a way gives other ids than the first one.
    """
    available = [way for way in ways if way.open is not None]
    _check(available)
    a_chunk = sum(run_round(way, samples_per_chunk, 0, CHECKED).seconds for way in available) / CHECKED
    chunks = max(LEAST_CHUNKS, int(seconds / ROUNDS / a_chunk))
    until = time.perf_counter() + seconds
    by_way: dict[str, list[Round]] = {way.name: [] for way in available}
    done = 0
    while done < LEAST_ROUNDS or time.perf_counter() < until:
        for way in available if done % 2 == 0 else reversed(available):  # so that none always comes first
            by_way[way.name].append(run_round(way, samples_per_chunk, done * chunks, chunks))
        done += 1
    first = by_way[available[0].name]
    return {name: summary(rounds, first) for name, rounds in by_way.items()}


def _check(ways: Sequence[Way]) -> None:
    expected = _first_chunks(ways[0])
    for way in ways[1:]:
        for index, (expected_ids, ids) in enumerate(zip(expected, _first_chunks(way), strict=True)):
            if way.same and not np.array_equal(expected_ids, ids):
                raise TrainerError(f"{way.name} and {ways[0].name} give other ids for chunk {index}: report this")


def _first_chunks(way: Way) -> list[np.ndarray]:
    assert way.open is not None
    with closing(way.open()) as source:
        return [source.group(number) for number in range(CHECKED)]


def run_round(way: Way, samples_per_chunk: int, first: int, chunks: int) -> Round:
    """Time the chunks from `first` on, together with the start and the end of background workers."""
    assert way.open is not None
    with closing(way.open()) as source:
        groups = [number % source.whole_groups for number in range(first, first + chunks)]
        cpu, began = time.process_time(), time.perf_counter()
        tokens = sum(len(source.group(number)) for number in groups)
        source.close()
        return Round(time.perf_counter() - began, time.process_time() - cpu, chunks * samples_per_chunk, tokens)


def summary(rounds: Sequence[Round], first: Sequence[Round]) -> Measured:
    """Figures of a way, from its rounds and those of the baseline."""
    ratios = [(r.samples / r.seconds) / (f.samples / f.seconds) for r, f in zip(rounds, first, strict=True)]
    return Measured(
        samples_per_s=_spread([r.samples / r.seconds for r in rounds]),
        tokens_per_s=_spread([r.tokens / r.seconds for r in rounds]),
        ms_per_sample=_spread([r.seconds * 1e3 / r.samples for r in rounds]),
        cpu_ms_per_sample=_spread([r.cpu_s * 1e3 / r.samples for r in rounds]),
        ratio=mean_ratio(ratios),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def mean_ratio(ratios: Sequence[float]) -> Ratio:
    """The mean ratio of two or more paired rounds; their logarithms are taken as independent."""
    from scipy.special import stdtrit

    logs = [math.log(ratio) for ratio in ratios]
    mean, n = statistics.fmean(logs), len(logs)
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * statistics.stdev(logs) / math.sqrt(n)
    low, high = math.exp(mean - half), math.exp(mean + half)
    return Ratio(math.exp(mean), low, high, n, different=not low <= 1 <= high)


def has_tokenizers() -> bool:
    """Whether the Hugging Face `tokenizers` library is installed; it is not imported for that."""
    return importlib.util.find_spec("tokenizers") is not None


def train_unigram(texts: Sequence[str], vocab_size: int, threads: int) -> Tokenizer:
    """A unigram model of `vocab_size` tokens of these texts, with the usual normalisation of SentencePiece.

    Threads are of the process: the first call decides.
    """
    os.environ.setdefault(_SHARED_THREADS, str(threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # else it prints on stderr what it decided
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    every = max(1, -(-sum(map(len, texts)) // TRAINING_CHARS))
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, unk_token=_UNKNOWN, special_tokens=[_UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts[::every], trainer)
    return tokenizer


class HuggingFaceChunks(TokenStream):
    """The chunks of a text as the ids of a model of the Hugging Face library: to measure it, never to train on."""

    def __init__(self, tokenizer: Tokenizer, text: ChunkedText, *, batch: bool) -> None:
        super().__init__(text)
        self._tokenizer = tokenizer
        self._batch = batch

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def group(self, number: int) -> np.ndarray:
        texts = self._samples.group(number)
        if self._batch:  # without the offsets of tokens in the text, which nobody needs
            pieces = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        else:
            pieces = [self._tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return np.concatenate([np.array(piece.ids, np.int32) for piece in pieces])
