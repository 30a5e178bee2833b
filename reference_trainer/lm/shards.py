"""Chunks of token ids out of shards that were tokenized beforehand: no text, no tokenizer, slices of mapped files."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import checked, sample_chars
from reference_trainer.lm.corpus import Corpus, Samples
from reference_trainer.lm.shard_check import check_index, open_shard
from reference_trainer.lm.shard_index import INDEX, SCHEMA, Index, Origin, counted, reported
from reference_trainer.lm.shard_writer import SHARD_TOKENS, locked, write_shards
from reference_trainer.lm.tokenizer import Tokenizer, cache_folder

_log: Final = logging.getLogger(__name__)


class ShardChunks:
    """Chunk i as `Chunks` makes it, bit for bit: ids (T + 1,) int32, 1 <= T <= tokens_per_chunk."""

    def __init__(
        self,
        directory: Path,
        *,
        tokenizer_fingerprint: str,
        corpus_sha256: str,
        sample_chars: int,
        tokens_per_chunk: int,
        samples_per_chunk: int,
        verbose: bool = False,
    ) -> None:
        """Map the shards, and read each through once to check it.

        :raises TrainerError: they are of another tokenizer, corpus or sample size, incomplete, missing, cut short,
            damaged, or of a newer schema.
        """
        index = check_index(directory, Origin(tokenizer_fingerprint, corpus_sha256, sample_chars))
        if index.samples < samples_per_chunk:
            raise TrainerError(
                f"{directory / INDEX}: {counted(index.samples, 'sample')}, too few for a chunk of {samples_per_chunk}: "
                "give more text, or less --samples-per-chunk"
            )
        shards = [open_shard(directory, index, number) for number in range(len(index.shards))]
        self._ids = [ids for ids, _ in shards]
        self._offsets = [offsets for _, offsets in shards]
        self._starts = [0, *accumulate(shard.samples for shard in index.shards)]
        self._samples_per_chunk = samples_per_chunk
        self._most = tokens_per_chunk + 1
        self._verbose = verbose

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index`."""
        with marks.region("data"):
            if not self._verbose:
                return checked(self._chunk(index), index)
            began = time.perf_counter()
            ids = checked(self._chunk(index), index)
            took = (time.perf_counter() - began) * 1e6
            print(f"Read {counted(self._samples_per_chunk, 'sample')} from shards in {took:.1f} µs", flush=True)
            return ids

    def close(self) -> None:
        """Give the mapped files back."""
        self._ids, self._offsets = [], []

    def _chunk(self, index: int) -> np.ndarray:
        left, most = self._samples_per_chunk, self._most
        sample = index * left % self._starts[-1]
        pieces: list[np.ndarray] = []
        while True:
            shard = bisect_right(self._starts, sample) - 1
            first = sample - self._starts[shard]
            offsets = self._offsets[shard]
            last = min(first + left, len(offsets) - 1)
            begin = int(offsets[first])
            piece = self._ids[shard][begin : min(int(offsets[last]), begin + most)]
            left -= last - first
            most -= len(piece)
            if not left and not pieces:  # all of one shard, as nearly all chunks are
                return piece.astype(np.int32)
            pieces.append(piece)
            if not left:
                return np.concatenate(pieces, dtype=np.int32)
            sample = (sample + last - first) % self._starts[-1]


def ensure_shards(
    corpus: Corpus,
    tokenizer: Tokenizer,
    tokens_per_chunk: int,
    samples_per_chunk: int,
    directory: Path | None = None,
) -> Path:
    """Where this corpus's shards are: in `directory`, checked by its index, or in the user's cache, made if need be.

    :raises TrainerError: the shards of `directory` are not of this corpus, tokenizer and sample size; the text is too
        short for one chunk; the cache cannot be written.
    """
    chars = sample_chars(tokenizer, tokens_per_chunk, samples_per_chunk)
    wanted = Index(Origin(tokenizer.fingerprint, corpus.sha256, chars), corpus.name, tokenizer.vocab_size, SHARD_TOKENS)
    if directory is not None:
        check_index(directory, wanted.origin, wanted.corpus)
        return directory
    key = [SCHEMA, wanted.origin.tokenizer, wanted.origin.corpus_sha256, chars]
    directory = cache_folder().parent / "shards" / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    with locked(directory, wait=True):
        if not _whole(directory, wanted):
            write_shards(directory, wanted, Samples(corpus, chars, samples_per_chunk), tokenizer)
    return directory


def _whole(directory: Path, wanted: Index) -> bool:
    """Whether a cached folder holds all that is wanted. What cannot be used is removed: a cache mends itself."""
    if (directory / INDEX).exists():
        try:
            index = check_index(directory, wanted.origin, wanted.corpus)
            for number in range(len(index.shards)):
                open_shard(directory, index, number)
            return True
        except TrainerError as error:
            _log.warning("making cached shards again: %s", error)
    with reported(directory):
        for path in (directory / INDEX, *directory.glob("shard-*.bin")):
            path.unlink(missing_ok=True)
    return False
