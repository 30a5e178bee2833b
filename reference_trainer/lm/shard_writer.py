"""Writes a corpus as token shards, and goes on where it was interrupted.

Where a shard ends depends on the text and the tokenizer alone, so that a run that was cut off, or one with another
number of workers, gives the same bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.corpus import Corpus, Samples
from reference_trainer.lm.shards import (
    INDEX,
    REMOVE,
    SCHEMA,
    Index,
    Shard,
    check_index,
    disk_errors,
    offsets_at,
    open_shard,
    planned_index,
    read_index,
    shard_path,
)
from reference_trainer.lm.tokenizer import Tokenizer, cache_folder
from reference_trainer.program import obey

BLOCK_CHARS: Final = 1 << 18
"""A block that a worker encodes is samples of about so many characters, some milliseconds of work."""
AHEAD: Final = 4
"""Encoded blocks per worker that may wait for an earlier one: bounds the memory."""

_LOCK: Final = ".lock"
_log: Final = logging.getLogger(__name__)

EncodedBlock = tuple[np.ndarray, np.ndarray]
"""Tokens of each sample (S,) int64, and the ids of them all, one after the other."""


@contextmanager
def locked(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Make the folder and lock out every other writer; the lock ends with this process, however it ends.

    :raises TrainerError: another process writes here (unless `wait`), or the folder cannot be written.
    """
    with disk_errors(directory, "shards cannot be written to "):
        directory.mkdir(parents=True, exist_ok=True)
        file = open(directory / _LOCK, "a", encoding="utf-8")  # noqa: SIM115  closed below, outside `disk_errors`
    with file:
        try:
            # lockf and not flock: a child process that inherits the file does not hold the lock
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except (BlockingIOError, PermissionError):
            raise TrainerError(f"{directory}: another process writes shards here: wait until it is done") from None
        yield


def finished_shards(directory: Path) -> int:
    """How many shards the index of a folder lists; 0 where it has none yet. Writes nothing.

    :raises TrainerError: the folder holds files of another program, or the index is damaged.
    """
    with disk_errors(directory):
        if (directory / INDEX).exists():
            return len(read_index(directory).shards)
        if shard_path(directory, 0).exists():
            raise TrainerError(f"{directory} holds {shard_path(directory, 0).name} but no {INDEX}: name another folder")
    return 0


def write_shards(
    directory: Path,
    planned: Index,
    samples: Samples,
    tokenizer: Tokenizer,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Index:
    """Write the shards that `directory` does not hold yet, inside `locked`; the index of them all.

    :param progress: called after every block with the samples and tokens that are written.
    :raises TrainerError: the folder holds other shards or damaged ones, a worker failed, the disk is full.
    """
    index = _resumed_index(directory, planned)
    if index.complete:
        return index
    output = _Output(directory, index)
    with closing(output), closing(_encoded_blocks(samples, tokenizer, index, workers)) as blocks:
        for counts, ids in blocks:
            obey()
            output.add(counts, ids)
            if progress:
                progress(output.samples, output.tokens)
        return output.finish()


def ensure_shards(
    corpus: Corpus,
    tokenizer: Tokenizer,
    tokens_per_chunk: int,
    samples_per_chunk: int,
    directory: Path | None = None,
) -> Path:
    """The folder of this corpus's shards: `directory`, whose index is checked, or one in the user's cache.

    :raises TrainerError: the shards of `directory` are not of this corpus, tokenizer and sample size; the text is too
        short for one chunk; the cache cannot be written.
    """
    planned = planned_index(corpus, tokenizer, tokens_per_chunk, samples_per_chunk)
    if directory is not None:
        check_index(directory, planned)
        return directory
    key = [SCHEMA, planned.tokenizer, planned.corpus_sha256, planned.sample_chars]
    directory = cache_folder().parent / "shards" / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    with locked(directory, wait=True):
        if not _is_intact(directory, planned):
            with disk_errors(directory):
                for path in (directory / INDEX, *directory.glob("shard-*.bin")):
                    path.unlink(missing_ok=True)
            write_shards(directory, planned, Samples(corpus, planned.sample_chars, samples_per_chunk), tokenizer)
    return directory


def _is_intact(directory: Path, planned: Index) -> bool:
    """Whether a cached folder holds all shards; a damaged one is made again."""
    if not (directory / INDEX).exists():
        return False
    try:
        index = check_index(directory, planned)
        for number in range(len(index.shards)):
            open_shard(directory, index, number)
    except TrainerError as error:
        _log.warning("making cached shards again: %s", error)
        return False
    return True


def _resumed_index(directory: Path, planned: Index) -> Index:
    """The index to go on from: finished shards are verified and kept."""
    finished_shards(directory)
    if not (directory / INDEX).exists():
        _write_index(directory, planned)
        return planned
    index = read_index(directory)
    difference = index.difference(planned)
    if not difference and index.shard_tokens != planned.shard_tokens:
        difference = f"of {index.shard_tokens} tokens, not {planned.shard_tokens} (--shard-tokens)"
    if difference:
        raise TrainerError(f"{directory} holds other shards, {difference}: name another folder, or {REMOVE}")
    for number in range(len(index.shards)):
        open_shard(directory, index, number)
    return index


def _encoded_blocks(
    samples: Samples, tokenizer: Tokenizer, index: Index, workers: int
) -> Generator[EncodedBlock, None, None]:
    """The samples that the index does not have yet as token ids, in order, encoded in background threads.

    Threads and not processes: the library gives arrays without holding the GIL, so that they run in parallel, share
    the text, and hand over their arrays at no cost (figures: docs/log.md).

    :raises TrainerError: a worker failed.
    """

    def encode(block: range) -> EncodedBlock:
        pieces = tokenizer.encode_arrays([samples[number] for number in block])
        counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return counts, np.concatenate(pieces, dtype=np.dtype(index.dtype), casting="unsafe")

    size, end = max(1, BLOCK_CHARS // samples.longest), samples.epoch_length
    blocks = [range(begin, min(begin + size, end)) for begin in range(index.samples, end, size)]
    workers = max(1, min(workers, len(blocks)))
    pool = ThreadPoolExecutor(workers, thread_name_prefix="encode")
    pending: deque[tuple[range, Future[EncodedBlock]]] = deque()
    try:
        for block in blocks:
            pending.append((block, pool.submit(encode, block)))
            if len(pending) == AHEAD * workers:
                yield _result(*pending.popleft())
        while pending:
            yield _result(*pending.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _result(block: range, future: Future[EncodedBlock]) -> EncodedBlock:
    if error := future.exception():
        reason = " ".join(str(error).split()) or "no reason given"
        raise TrainerError(
            f"samples {block[0]} to {block[-1]}: their tokenizing worker failed: {type(error).__name__}: {reason}"
        )
    return future.result()


def _unfinished(path: Path) -> Path:
    """The name of a file until it is complete."""
    return path.with_name(f".{path.name}.new")


def _write_index(directory: Path, index: Index) -> None:
    path = directory / INDEX
    with disk_errors(path):
        _unfinished(path).write_text(json.dumps(index.model_dump(by_alias=True)) + "\n", encoding="utf-8")
        _unfinished(path).replace(path)


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
                self._file = _ShardFile(shard_path(self._directory, len(self._index.shards)), self._index.dtype)
            ends = np.cumsum(counts)
            fit = 1 + int(np.searchsorted(ends, self._index.shard_tokens - self._file.tokens))
            fit = min(fit, len(counts))
            self._file.add(counts[:fit], ids[: ends[fit - 1]])
            counts, ids = counts[fit:], ids[ends[fit - 1] :]
            if self._file.tokens >= self._index.shard_tokens:
                self._finish_shard(self._file)

    def finish(self) -> Index:
        """Finish the last shard; the complete index."""
        if self._file is not None:
            self._finish_shard(self._file)
        self._index = self._index.model_copy(update={"complete": True})
        _write_index(self._directory, self._index)
        return self._index

    def close(self) -> None:
        """Remove unfinished files, also where an interrupt came before `_file` was set."""
        if self._file is not None:
            self._file.close()
        for path in (shard_path(self._directory, len(self._index.shards)), self._directory / INDEX):
            with disk_errors(_unfinished(path)):  # by name: a pattern would match files of other programs
                _unfinished(path).unlink(missing_ok=True)

    def _finish_shard(self, file: _ShardFile) -> None:
        shard = file.finish()
        self._file = None
        self._index = self._index.model_copy(update={"shards": (*self._index.shards, shard)})
        _write_index(self._directory, self._index)


class _ShardFile:
    """One shard, under a temporary name until it is finished."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._path = path
        self._dtype = dtype
        self._counts: list[np.ndarray] = []
        self._digest = hashlib.sha256()
        self.tokens = 0
        with disk_errors(path):
            self._file = open(_unfinished(path), "wb")  # noqa: SIM115  open over many calls

    def add(self, counts: np.ndarray, ids: np.ndarray) -> None:
        self._counts.append(counts)
        self.tokens += len(ids)
        self._write(ids.tobytes())

    def finish(self) -> Shard:
        """Rename the complete file."""
        offsets = np.concatenate([[0], *self._counts]).cumsum(dtype="<i8")
        self._write(bytes(offsets_at(self.tokens, self._dtype) - self.tokens * np.dtype(self._dtype).itemsize))
        self._write(offsets.tobytes())
        with disk_errors(self._path):
            size = self._file.tell()
            self._file.close()
            _unfinished(self._path).replace(self._path)
        return Shard(
            file=self._path.name,
            samples=len(offsets) - 1,
            tokens=self.tokens,
            bytes=size,
            sha256=self._digest.hexdigest(),
        )

    def close(self) -> None:
        with disk_errors(self._path):
            self._file.close()

    def _write(self, content: bytes) -> None:
        self._digest.update(content)
        with disk_errors(self._path):
            self._file.write(content)
