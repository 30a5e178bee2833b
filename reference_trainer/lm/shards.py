"""Token shards: text that was tokenized once, in files that training maps into memory.

    index.json         schema, tokenizer, corpus, sample size, dtype; samples, tokens, bytes and SHA-256 of each shard
    shard-00000.bin    the ids of its samples, one after the other; zeros up to a multiple of 8 bytes; then, int64, the
    ...                token that each sample begins at, and the end of the last. All little-endian.

Every file is written under a temporary name and then renamed; the index lists a shard once its file is complete.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import checked, join, sample_chars
from reference_trainer.lm.corpus import Corpus
from reference_trainer.lm.tokenizer import Tokenizer

SCHEMA: Final = 1
INDEX: Final = "index.json"
MAKE: Final = "python -m reference_trainer.lm.pretokenize"
SHARD_TOKENS: Final = 10_000_000
"""Tokens of a file, 20 MB at two bytes each: also what an interruption can lose."""
UINT16_VOCABULARY: Final = 1 << 16
"""Ids of a larger vocabulary take four bytes."""
REMOVE: Final = f"remove its {INDEX} and shard-*.bin"
"""Never the folder: it may hold other files."""
REPEAT: Final = f"{REMOVE} and make the shards again with {MAKE}"

_ALIGNMENT: Final = 8  # bytes: of the offsets behind the ids
_OFFSET_BYTES: Final = 8
_BEGINNING: Final = re.compile(r'{"schema": \d+, "complete": ')
"""How our index begins: tells a damaged one from another program's file."""
_OUR_KEYS: Final = {"schema", "complete", "tokenizer", "corpus_sha256"}


class Shard(BaseModel):
    """One finished file."""

    model_config = ConfigDict(frozen=True, strict=True)

    file: str
    samples: int = Field(ge=1)
    tokens: int = Field(ge=0)
    bytes: int
    sha256: str
    """Digest of the file, hexadecimal."""


class Index(BaseModel):
    """The content of index.json."""

    model_config = ConfigDict(frozen=True, strict=True)

    schema_version: int = Field(default=SCHEMA, alias="schema")
    complete: bool = False
    """The shards hold the complete corpus."""
    tokenizer: str
    """Fingerprint of its model."""
    corpus_sha256: str
    sample_chars: int
    """Largest number of characters of a sample."""
    corpus: str
    """Its name."""
    vocabulary: int
    dtype: str
    shard_tokens: int
    """A shard ends with the sample that brings it to so many tokens."""
    shards: tuple[Shard, ...] = ()

    @property
    def samples(self) -> int:
        """The number in all shards."""
        return sum(shard.samples for shard in self.shards)

    @property
    def tokens(self) -> int:
        """The number in all shards."""
        return sum(shard.tokens for shard in self.shards)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.dtype != _dtype(self.vocabulary):
            raise ValueError(f"its dtype is {self.dtype!r}, a vocabulary of {self.vocabulary} has another")
        for number, shard in enumerate(self.shards):
            name = shard_path(Path(), number).name
            if shard.file != name:
                raise ValueError(f"its entry {number} of shards is not of {name}")
            size = offsets_at(shard.tokens, self.dtype) + _OFFSET_BYTES * (shard.samples + 1)
            if shard.bytes != size:
                raise ValueError(f"{name} cannot be of {shard.bytes} bytes")
        return self

    def difference(self, planned: Index) -> str:
        """How the text of these shards differs from the planned one's; empty: not at all."""
        if self.corpus_sha256 != planned.corpus_sha256:  # first: another corpus has another tokenizer too
            return f"of corpus {_named(self)}, not {_named(planned)}"
        if self.tokenizer != planned.tokenizer:
            return f"of tokenizer {self.tokenizer}, not {planned.tokenizer}"
        if self.sample_chars != planned.sample_chars:
            return (
                f"of samples of {self.sample_chars} characters, not {planned.sample_chars} "
                "(--tokens-per-chunk, --samples-per-chunk)"
            )
        return ""


def planned_index(
    corpus: Corpus,
    tokenizer: Tokenizer,
    tokens_per_chunk: int,
    samples_per_chunk: int,
    shard_tokens: int = SHARD_TOKENS,
) -> Index:
    """The index that shards of this text have, with none of them in it yet."""
    return Index(
        tokenizer=tokenizer.fingerprint,
        corpus_sha256=corpus.sha256,
        sample_chars=sample_chars(tokenizer, tokens_per_chunk, samples_per_chunk),
        corpus=corpus.name,
        vocabulary=tokenizer.vocab_size,
        dtype=_dtype(tokenizer.vocab_size),
        shard_tokens=shard_tokens,
    )


def _dtype(vocabulary: int) -> str:
    return "uint16" if vocabulary <= UINT16_VOCABULARY else "uint32"


def _named(index: Index) -> str:
    return f"{index.corpus} (SHA-256 {index.corpus_sha256[:16]}...)"


def shard_path(directory: Path, number: int) -> Path:
    """File of shard `number`, from 0."""
    return directory / f"shard-{number:05}.bin"


def offsets_at(tokens: int, dtype: str) -> int:
    """Byte at which the offsets of a shard begin."""
    return -(-tokens * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT


def with_number(number: int, noun: str) -> str:
    """`1 shard`, `1,000 shards`."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


@contextmanager
def disk_errors(path: Path, prefix: str = "") -> Iterator[None]:
    """Turn errors of the disk into one line."""
    try:
        yield
    except OSError as error:
        raise TrainerError(f"{prefix}{path}: {error.strerror or error}") from None


def read_index(directory: Path) -> Index:
    """The index of a folder of shards.

    :raises TrainerError: it is missing, another program's, damaged, or of a newer schema.
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
        ours = isinstance(content, dict) and content.keys() >= _OUR_KEYS and type(content["schema"]) is int
    except (ValueError, RecursionError):
        content, ours = None, bool(_BEGINNING.match(text))
    if not ours:
        raise TrainerError(f"{directory} is not a folder of shards: {path} is not an index of them: name another")
    if content is None:
        raise TrainerError(f"{path} is damaged (it is cut short or no JSON): {REPEAT}")
    if content["schema"] > SCHEMA:
        raise TrainerError(
            f"{path} has schema {content['schema']}, this version reads up to {SCHEMA}: "
            f"update it, or make the shards again with {MAKE}"
        )
    try:
        return Index.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['msg']}" if where else first["msg"].removeprefix("Value error, ")
        raise TrainerError(f"{path} is damaged ({reason}): {REPEAT}") from None


def check_index(directory: Path, planned: Index) -> Index:
    """The index of a folder whose shards are of the planned text, and complete.

    :raises TrainerError: they are not.
    """
    index = read_index(directory)
    if difference := index.difference(planned):
        raise TrainerError(
            f"{directory / INDEX}: these shards are {difference}: name another folder, or make the shards with {MAKE}"
        )
    if not index.complete:
        raise TrainerError(
            f"{directory / INDEX}: these shards are not complete, {len(index.shards)} finished: "
            f"the same {MAKE} goes on from there"
        )
    return index


def open_shard(directory: Path, index: Index, number: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Ids (tokens,) and offsets (samples + 1,) int64 of a shard, mapped and checked against its SHA-256.

    :raises TrainerError: missing, cut short, or damaged.
    """
    path, shard = shard_path(directory, number), index.shards[number]
    try:
        size = path.stat().st_size
        if size != shard.bytes:
            fault = "cut short" if size < shard.bytes else "damaged"
            raise TrainerError(f"{path} is {fault}: it has {size} bytes, not {shard.bytes}: {REPEAT}")
        # a view of the map as a plain array: slicing a np.memmap costs microseconds
        content = np.asarray(np.memmap(path, np.uint8, mode="r"))
    except FileNotFoundError:
        raise TrainerError(f"{path} is missing: {REPEAT}") from None
    except OSError as error:
        raise TrainerError(f"{path} cannot be read: {error.strerror or error}") from None
    if hashlib.sha256(content.data).hexdigest() != shard.sha256:
        raise TrainerError(f"{path} is damaged: its SHA-256 is not that of {INDEX}: {REPEAT}")
    dtype = np.dtype(index.dtype).newbyteorder("<")
    ids = content[: shard.tokens * dtype.itemsize].view(dtype)
    return ids, content[offsets_at(shard.tokens, index.dtype) :].view("<i8")


class ShardChunks:
    """Chunk i as `Chunks` makes it, bit for bit: ids (T + 1,) int32, 1 <= T <= tokens_per_chunk."""

    def __init__(
        self,
        directory: Path,
        planned: Index,
        tokens_per_chunk: int,
        samples_per_chunk: int,
        *,
        verbose: bool = False,
    ) -> None:
        """Map the shards, and read each through once to check it.

        :raises TrainerError: they are of another text, incomplete, missing, damaged, or of a newer schema.
        """
        index = check_index(directory, planned)
        if index.samples < samples_per_chunk:
            raise TrainerError(
                f"{directory / INDEX}: {with_number(index.samples, 'sample')}, too few for a chunk of "
                f"{samples_per_chunk}: give more text, or less --samples-per-chunk"
            )
        self._shards = [open_shard(directory, index, number) for number in range(len(index.shards))]
        self._starts = [0, *accumulate(shard.samples for shard in index.shards)]
        self._samples_per_chunk = samples_per_chunk
        self._tokens_per_chunk = tokens_per_chunk
        self._verbose = verbose

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index`."""
        with marks.region("data"):
            began = time.perf_counter()
            first, count = index * self._samples_per_chunk, self._samples_per_chunk
            pieces = [self._sample(number % self._starts[-1]) for number in range(first, first + count)]
            ids = checked(join(pieces, self._tokens_per_chunk).astype(np.int32), index)
            if self._verbose:
                took = (time.perf_counter() - began) * 1e6
                print(f"Read {with_number(count, 'sample')} from shards in {took:.1f} µs", flush=True)
            return ids

    def close(self) -> None:
        """Release the mapped files."""
        self._shards = []

    def _sample(self, number: int) -> np.ndarray:
        shard = bisect_right(self._starts, number) - 1
        ids, offsets = self._shards[shard]
        first = number - self._starts[shard]
        return ids[offsets[first] : offsets[first + 1]]
