"""Writes a corpus as token shards, and continues where it was interrupted.

Where a shard ends depends on the text and the tokenizer alone, so that an interrupted run, or one with another number
of workers, gives the same bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm import shards
from reference_trainer.lm.chunks import ChunkedText, worker_result
from reference_trainer.lm.shards import INDEX, Index, Shard, disk_errors, open_shard, shard_path
from reference_trainer.lm.tokenizer import cache_folder
from reference_trainer.program import obey, replace_file

BLOCK_CHARS: Final = 1 << 18
"""Characters of a block that a worker encodes, about: some milliseconds of work."""
AHEAD: Final = 4
"""Encoded blocks per worker that may wait for an earlier one: bounds the memory."""

_LOCK: Final = ".lock"
_log: Final = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Takes the samples and the tokens so far."""


@contextmanager
def locked(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Make the folder and lock out every other writer; the lock ends with this process, however it ends."""
    with disk_errors(f"shards cannot be written to {directory}"):
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
    """The number of shards that the index of a folder lists; 0 without an index. Writes nothing."""
    index = _index(directory)
    return len(index.shards) if index else 0


def _index(directory: Path) -> Index | None:
    with disk_errors(directory):
        if (directory / INDEX).exists():
            return shards.read_index(directory)
        if shard_path(directory, 0).exists():
            raise TrainerError(f"{directory} holds {shard_path(directory, 0).name} but no {INDEX}: name another folder")
    return None


def write_shards(
    directory: Path, text: ChunkedText, shard_tokens: int, *, workers: int = 1, progress: Progress | None = None
) -> Index:
    """Write the shards that `directory` does not hold yet; the index of them all."""
    with locked(directory):
        return _write_shards(directory, text, shards.planned_index(text, shard_tokens), workers, progress)


def ensure_shards(text: ChunkedText, directory: Path | None = None) -> Path:
    """The folder of this text's shards: `directory`, whose index is checked, or one in the user's cache."""
    planned = shards.planned_index(text)
    if directory is not None:
        shards.check_index(directory, planned)
        return directory
    key = [shards.SCHEMA, planned.tokenizer, planned.corpus_sha256, planned.sample_chars]
    directory = cache_folder().parent / "shards" / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    with locked(directory, wait=True):
        try:
            if (directory / INDEX).exists():
                index = shards.check_index(directory, planned)
                for number in range(len(index.shards)):
                    open_shard(directory, index, number)
                return directory
        except TrainerError as error:
            _log.warning("making cached shards again: %s", error)
        with disk_errors(directory):
            for path in (directory / INDEX, *directory.glob("shard-*.bin")):
                path.unlink(missing_ok=True)
        _write_shards(directory, text, planned)
    return directory


def _write_shards(
    directory: Path, text: ChunkedText, planned: Index, workers: int = 1, progress: Progress | None = None
) -> Index:
    index = _resumed_index(directory, planned)
    if index.complete:
        return index
    pieces: list[np.ndarray] = []  # samples of the next shard
    tokens = 0
    with closing(_encoded_blocks(text, index, workers)) as blocks:
        for block in blocks:
            obey()
            for piece in block:
                pieces.append(piece)
                tokens += len(piece)
                if tokens >= index.shard_tokens:
                    index = _add_shard(directory, index, pieces)
                    pieces, tokens = [], 0
            if progress:
                progress(index.samples + len(pieces), index.tokens + tokens)
    if pieces:
        index = _add_shard(directory, index, pieces)
    return _write_index(directory, index.model_copy(update={"complete": True}))


def _resumed_index(directory: Path, planned: Index) -> Index:
    """The index to continue from: finished shards are verified and kept."""
    index = _index(directory)
    if index is None:
        return _write_index(directory, planned)
    difference = index.difference(planned)
    if not difference and index.shard_tokens != planned.shard_tokens:
        difference = f"of {index.shard_tokens} tokens, not {planned.shard_tokens} (--shard-tokens)"
    if difference:
        raise TrainerError(f"{directory} holds other shards, {difference}: {shards.REMOVE}")
    for number in range(len(index.shards)):
        open_shard(directory, index, number)
    return index


def _encoded_blocks(text: ChunkedText, index: Index, workers: int) -> Generator[list[np.ndarray], None, None]:
    """The ids of the samples that the index does not have yet, in order, encoded in background threads.

    Threads and not processes: the library gives arrays without holding the GIL, so that they run in parallel, share
    the text, and hand over their arrays at no cost (figures: docs/log.md).
    """
    samples, dtype = text.samples, np.dtype(index.dtype).newbyteorder("<")

    def encode(block: range) -> list[np.ndarray]:
        pieces = text.tokenizer.encode_arrays([samples[number] for number in block])
        return [piece.astype(dtype) for piece in pieces]

    size, end = max(1, BLOCK_CHARS // samples.longest), len(samples)
    blocks = [range(begin, min(begin + size, end)) for begin in range(index.samples, end, size)]
    workers = max(1, min(workers, len(blocks)))
    pool = ThreadPoolExecutor(workers, thread_name_prefix="encode")
    pending: deque[tuple[Future[list[np.ndarray]], str]] = deque()
    try:
        for block in blocks:
            pending.append((pool.submit(encode, block), f"samples {block[0]} to {block[-1]}"))
            if len(pending) == AHEAD * workers:
                yield worker_result(*pending.popleft())
        while pending:
            yield worker_result(*pending.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _add_shard(directory: Path, index: Index, pieces: Sequence[np.ndarray]) -> Index:
    """Write the ids of these samples as the next shard; the index with it."""
    path, ids = shard_path(directory, len(index.shards)), np.concatenate(pieces)
    offsets = np.cumsum([0, *map(len, pieces)], dtype="<i8")
    content = b"".join((ids.tobytes(), bytes(-ids.nbytes % shards.ALIGNMENT), offsets.tobytes()))
    with disk_errors(path):
        replace_file(path, content)
    shard = Shard(
        file=path.name,
        samples=len(pieces),
        tokens=len(ids),
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    return _write_index(directory, index.model_copy(update={"shards": (*index.shards, shard)}))


def _write_index(directory: Path, index: Index) -> Index:
    with disk_errors(directory / INDEX):
        replace_file(directory / INDEX, json.dumps(index.model_dump(by_alias=True)).encode() + b"\n")
    return index
