"""Whether shards are of the right text and whole; nothing is read from them before."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.shard_index import INDEX, MAKE, SCHEMA, Index, Origin, Shard, offsets_at, reported, shard_path

REMOVE: Final = f"remove its {INDEX} and shard-*.bin"
AGAIN: Final = f"{REMOVE} and make the shards again with {MAKE}"
"""What to do about shards that are beyond use. Never to remove the folder: it may hold other files."""

_BEGINNING: Final = re.compile(
    r'{"schema": \d+, "complete": '
)  # as write_index has it: tells our damaged file from another's
_OFFSET: Final = 8  # bytes of an int64
_OURS: Final = {"schema", "complete", "tokenizer", "corpus_sha256"}  # fields


def finished_shards(directory: Path) -> int:
    """How many a folder holds, by its index; 0 where it has none yet. Writes nothing.

    :raises TrainerError: what is there is not ours, or the index is damaged.
    """
    with reported(directory):
        if (directory / INDEX).exists():
            return len(read_index(directory).shards)
        if shard_path(directory, 0).exists():
            raise TrainerError(f"{directory} holds {shard_path(directory, 0).name} but no {INDEX}: name another folder")
    return 0


def check_index(directory: Path, wanted: Origin, corpus: str = "") -> Index:
    """The index of a folder whose shards are of the wanted origin, and all there by its word.

    :param corpus: name of the wanted one, where it is known.
    :raises TrainerError: they are not.
    """
    index = read_index(directory)
    if different := index.difference(wanted, corpus):
        raise TrainerError(
            f"{directory / INDEX}: these shards are {different}: name another folder, or make the shards with {MAKE}"
        )
    if not index.complete:
        raise TrainerError(
            f"{directory / INDEX}: these shards are not complete, {len(index.shards)} finished: "
            f"the same {MAKE} goes on from there"
        )
    return index


def read_index(directory: Path) -> Index:
    """The index of a folder of shards.

    :raises TrainerError: there is none, it is another program's, damaged, or of a newer schema.
    """
    path = directory / INDEX
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        raise TrainerError(f"{path} does not exist: make the shards with {MAKE} --out {directory}") from None
    except OSError as error:
        raise TrainerError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        content = json.loads(text)
        ours = isinstance(content, dict) and content.keys() >= _OURS and type(content["schema"]) is int
    except (ValueError, RecursionError):
        content, ours = None, bool(_BEGINNING.match(text))
    if not ours:
        raise TrainerError(f"{directory} is not a folder of shards: {path} is not an index of them: name another")
    if content is not None and content["schema"] > SCHEMA:
        raise TrainerError(
            f"{path} has schema {content['schema']}, this version reads up to {SCHEMA}: "
            f"update it, or make the shards again with {MAKE}"
        )
    try:
        if content is None:
            raise ValueError("it is cut short or no JSON")
        return _index(directory, content)
    except ValueError as error:
        raise TrainerError(f"{path} is damaged ({error}): {AGAIN}") from None


def _index(directory: Path, content: dict[str, Any]) -> Index:
    """:raises ValueError: what is wrong with it."""
    shards: list[Shard] = []
    for number, entry in enumerate(_field(content, "shards", list)):
        name = shard_path(directory, number).name
        if not isinstance(entry, dict) or entry.get("file") != name:
            raise ValueError(f"its entry {number} of shards is not of {name}")
        samples, tokens, size = (_field(entry, field, int) for field in ("samples", "tokens", "bytes"))
        shards.append(Shard(samples, tokens, size, _field(entry, "sha256", str)))
    index = Index(
        Origin(
            tokenizer=_field(content, "tokenizer", str),
            corpus_sha256=_field(content, "corpus_sha256", str),
            sample_chars=_field(content, "sample_chars", int),
        ),
        corpus=_field(content, "corpus", str),
        vocabulary=_field(content, "vocabulary", int),
        shard_tokens=_field(content, "shard_tokens", int),
        shards=tuple(shards),
        complete=_field(content, "complete", bool),
    )
    if (dtype := _field(content, "dtype", str)) != index.dtype.name:
        raise ValueError(f"its dtype is {dtype!r}, not {index.dtype.name} as a vocabulary of {index.vocabulary} needs")
    for number, shard in enumerate(shards):
        expected = offsets_at(shard.tokens, index.dtype) + _OFFSET * (shard.samples + 1)
        if shard.samples < 1 or shard.tokens < 0 or shard.bytes != expected:
            raise ValueError(f"{shard_path(directory, number).name} cannot be of {shard.bytes} bytes")
    return index


def _field(content: dict[str, Any], name: str, kind: type) -> Any:
    value = content.get(name)
    if type(value) is not kind:  # True is no number
        raise ValueError(f"its {name} is missing or of the wrong kind")
    return value


def open_shard(directory: Path, index: Index, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids (tokens,) and offsets (samples + 1,) int64 of a shard, mapped and checked against its SHA-256.

    :raises TrainerError: missing, cut short, or damaged.
    """
    path, shard = shard_path(directory, number), index.shards[number]
    try:
        size = path.stat().st_size
        if size != shard.bytes:
            raise TrainerError(
                f"{path} is {'cut short' if size < shard.bytes else 'damaged'}: it has {size} bytes, not "
                f"{shard.bytes}: {AGAIN}"
            )
        # a view of the map as a plain array: slicing a np.memmap costs microseconds
        content = np.asarray(np.memmap(path, np.uint8, mode="r"))
    except FileNotFoundError:
        raise TrainerError(f"{path} is missing: {AGAIN}") from None
    except OSError as error:
        raise TrainerError(f"{path} cannot be read: {error.strerror or error}") from None
    if hashlib.sha256(content.data).hexdigest() != shard.sha256:
        raise TrainerError(f"{path} is damaged: its SHA-256 is not that of {INDEX}: {AGAIN}")
    ids = content[: shard.tokens * index.dtype.itemsize].view(index.dtype)
    return ids, content[offsets_at(shard.tokens, index.dtype) :].view("<i8")
