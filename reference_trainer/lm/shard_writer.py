"""Writes a corpus as token shards, and goes on where it was interrupted.

Where a shard ends depends on the text and the tokenizer alone, so that a run that was cut off, or one with another
number of workers, gives the same bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from reference_trainer.edge import obey
from reference_trainer.errors import TrainerError
from reference_trainer.lm.corpus import Samples
from reference_trainer.lm.encode_workers import EncodedSamples
from reference_trainer.lm.shard_check import REMOVE, finished_shards, open_shard, read_index
from reference_trainer.lm.shard_index import (
    INDEX,
    Index,
    Shard,
    offsets_at,
    reported,
    shard_path,
    unfinished_name,
    write_index,
)
from reference_trainer.lm.tokenizer import Tokenizer

SHARD_TOKENS: Final = 10_000_000
"""20 MB a file at two bytes a token; and what an interruption can lose."""

_LOCK: Final = ".lock"


@contextmanager
def locked(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Make the folder, and keep every other writer out of it; the lock ends with this process, however it ends.

    :raises TrainerError: another process writes here (unless `wait`), or nothing can be written here.
    """
    with reported(directory, "shards cannot be written to "):
        directory.mkdir(parents=True, exist_ok=True)
        file = open(directory / _LOCK, "a", encoding="utf-8")  # noqa: SIM115  closed below, outside `reported`
    with file:
        try:
            # lockf and not flock: a child process that inherits the file does not hold the lock
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except (BlockingIOError, PermissionError):
            raise TrainerError(f"{directory}: another process writes shards here: wait until it is done") from None
        yield


def write_shards(
    directory: Path,
    wanted: Index,
    samples: Samples,
    tokenizer: Tokenizer,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Index:
    """Write the shards that `directory` does not hold yet, inside `locked`; the index of them all.

    :param wanted: what the shards are to be of, with none of them in it.
    :param progress: called after every block with the samples and tokens that are written.
    :raises TrainerError: the folder holds other shards or damaged ones, a worker failed, the disk is full.
    """
    index = _begun(directory, wanted)
    if index.complete:
        return index
    encoded = EncodedSamples(samples, tokenizer, index.dtype, index.samples, workers)
    output = _Output(directory, index)
    try:
        for counts, ids in encoded:
            obey()
            output.add(counts, ids)
            if progress:
                progress(output.samples, output.tokens)
        return output.end()
    finally:
        encoded.close()
        output.close()


def _begun(directory: Path, wanted: Index) -> Index:
    """The index to go on from: what is finished is verified and kept."""
    finished_shards(directory)
    if not (directory / INDEX).exists():
        write_index(directory, wanted)
        return wanted
    index = read_index(directory)
    different = index.difference(wanted.origin, wanted.corpus)
    if not different and index.shard_tokens != wanted.shard_tokens:
        different = f"of {index.shard_tokens} tokens, not {wanted.shard_tokens} (--shard-tokens)"
    if different:
        raise TrainerError(f"{directory} holds other shards, {different}: name another folder, or {REMOVE}")
    for number in range(len(index.shards)):
        open_shard(directory, index, number)
    return index


class _Output:
    """The shards of a folder, and the one that is being written."""

    def __init__(self, directory: Path, index: Index) -> None:
        self._directory = directory
        self._index = index
        self._file: _ShardFile | None = None
        self.samples = index.samples
        self.tokens = index.tokens

    def add(self, counts: np.ndarray, ids: np.ndarray) -> None:
        """Append samples: tokens of each, and the ids of them all."""
        self.samples += len(counts)
        self.tokens += len(ids)
        while len(counts):
            if self._file is None:
                self._file = _ShardFile(shard_path(self._directory, len(self._index.shards)), self._index)
            ends = np.cumsum(counts)
            fit = 1 + int(np.searchsorted(ends, self._index.shard_tokens - self._file.tokens))
            fit = min(fit, len(counts))
            self._file.add(counts[:fit], ids[: ends[fit - 1]])
            counts, ids = counts[fit:], ids[ends[fit - 1] :]
            if self._file.tokens >= self._index.shard_tokens:
                self._finish(self._file)

    def end(self) -> Index:
        """Finish the last shard; the index, which says that this is all."""
        if self._file is not None:
            self._finish(self._file)
        self._index = replace(self._index, complete=True)
        write_index(self._directory, self._index)
        return self._index

    def close(self) -> None:
        """Remove what is not finished, also where an interrupt came before this knew of it."""
        if self._file is not None:
            self._file.close()
        shard = shard_path(self._directory, len(self._index.shards))
        for name in (shard.name, INDEX):  # by name: a pattern would meet files of others
            unfinished = self._directory / unfinished_name(name)
            with reported(unfinished):
                unfinished.unlink(missing_ok=True)

    def _finish(self, file: _ShardFile) -> None:
        shard = file.finish()
        self._file = None
        self._index = replace(self._index, shards=(*self._index.shards, shard))
        write_index(self._directory, self._index)


class _ShardFile:
    """One shard, beside its place until it is finished."""

    def __init__(self, path: Path, index: Index) -> None:
        self._path = path
        self._dtype = index.dtype
        self._temporary = path.with_name(unfinished_name(path.name))  # a run that goes on writes over it
        self._counts: list[np.ndarray] = []
        self._digest = hashlib.sha256()
        self.tokens = 0
        with reported(path):
            self._file = open(self._temporary, "wb")  # noqa: SIM115  open over many calls

    def add(self, counts: np.ndarray, ids: np.ndarray) -> None:
        self._counts.append(counts)
        self.tokens += len(ids)
        self._write(ids.tobytes())

    def finish(self) -> Shard:
        """Put the file into its place."""
        offsets = np.concatenate([[0], *self._counts]).cumsum(dtype="<i8")
        self._write(bytes(offsets_at(self.tokens, self._dtype) - self.tokens * self._dtype.itemsize))
        self._write(offsets.tobytes())
        with reported(self._path):
            size = self._file.tell()
            self._file.close()
            self._temporary.replace(self._path)
        return Shard(len(offsets) - 1, self.tokens, size, self._digest.hexdigest())

    def close(self) -> None:
        with reported(self._path):
            self._file.close()

    def _write(self, content: bytes) -> None:
        self._digest.update(content)
        with reported(self._path):
            self._file.write(content)
