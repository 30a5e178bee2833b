"""The ways of getting a chunk's tokens that are measured side by side, each as a source of chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Final

from reference_trainer.lm import huggingface
from reference_trainer.lm.chunks import Chunks, Source, sample_chars
from reference_trainer.lm.corpus import Corpus, Samples
from reference_trainer.lm.parallel_tokenize import ParallelChunks
from reference_trainer.lm.shard_writer import ensure_shards
from reference_trainer.lm.shards import ShardChunks, planned_index
from reference_trainer.lm.tokenizer import Tokenizer

OURS: Final = "SentencePiece"
SHARDS: Final = "memory-mapped shards"
THEIRS: Final = "Hugging Face tokenizers"


@dataclass(frozen=True, slots=True)
class Case:
    """What is tokenized: the same for every way."""

    corpus: Corpus
    tokenizer: Tokenizer
    tokens_per_chunk: int
    samples_per_chunk: int
    workers: int
    """Threads of the ways that use several."""

    @property
    def sample_chars(self) -> int:
        """Most characters of a sample."""
        return sample_chars(self.tokenizer, self.tokens_per_chunk, self.samples_per_chunk)

    def chunks(self, *, batch: bool, threads: int = 1) -> Chunks:
        """A source that tokenizes in line."""
        return Chunks(
            self.corpus, self.tokenizer, self.tokens_per_chunk, self.samples_per_chunk, batch=batch, threads=threads
        )


@dataclass(frozen=True, slots=True)
class Way:
    """One way. Its source is opened before each round, untimed, and closed in the time of that round."""

    name: str
    library: str
    how: str
    """What happens, in a few words."""
    threads: int
    open: Callable[[], Source] | None
    """None: it cannot be measured here."""
    missing: str = ""
    """Why not."""
    same: bool = True
    """Its ids are those of the first way."""
    tokenizes: bool = True
    """False: that was done before."""


def ways(case: Case) -> Iterator[Way]:
    """All ways; the first is what the others are held against.

    :raises TrainerError: the text is too short for a chunk, or shards cannot be written.
    """
    one_by_one, batch = case.chunks(batch=False), case.chunks(batch=True)
    library = f"{OURS} {version('sentencepiece')}"
    yield Way("sequential", library, "one call a sample", 1, partial(_same, one_by_one))
    yield Way("batch", library, "one call a chunk", 1, partial(_same, batch))
    if case.workers > 1:
        threaded = case.chunks(batch=True, threads=case.workers)
        yield Way("threaded batch", library, "one call a chunk, shared out", case.workers, partial(_same, threaded))
    parallel = ParallelChunks(
        case.corpus, case.tokenizer, case.tokens_per_chunk, case.samples_per_chunk, workers=case.workers
    )
    yield Way("parallel", library, "in the background, the next chunks", case.workers, partial(_same, parallel))
    yield Way("pre-tokenized", SHARDS, "read from files", 1, partial(_open_shards, case), tokenizes=False)
    yield from _theirs(case, one_by_one)


def _open_shards(case: Case) -> ShardChunks:
    tokens, samples = case.tokens_per_chunk, case.samples_per_chunk
    directory = ensure_shards(case.corpus, case.tokenizer, tokens, samples)
    return ShardChunks(directory, planned_index(case.corpus, case.tokenizer, tokens, samples), tokens, samples)


def _theirs(case: Case, ours: Chunks) -> Iterator[Way]:
    kinds = (("one by one", "one call a sample", 1, False), ("batch", "one call a chunk", case.workers, True))
    if not huggingface.available():
        for name, how, threads, _ in kinds:
            yield Way(f"Hugging Face {name}", THEIRS, how, threads, None, huggingface.MISSING, same=False)
        return
    samples = Samples(case.corpus, case.sample_chars)
    texts = [samples[number] for number in range(samples.epoch_length)]
    model = huggingface.train(texts, case.tokenizer.vocab_size, case.workers)
    library = f"{THEIRS} {version('tokenizers')}"
    for name, how, threads, batch in kinds:
        source = huggingface.HuggingFaceChunks(model, ours.texts, batch=batch)
        yield Way(f"Hugging Face {name}", library, how, threads, partial(_same, source), same=False)


def _same(source: Source) -> Source:
    return source
