"""Token shards: text that was tokenized once, in files that training maps into memory.

    index.json         schema, tokenizer, corpus, sample size, dtype; samples, tokens, bytes and SHA-256 of each shard
    shard-00000.bin    the ids of its samples, one after the other; zeros up to a multiple of 8 bytes; then, int64, the
    ...                token that each sample begins at, and the end of the last. All little-endian.

Every file is written under a temporary name and then renamed; the index lists a shard once its file is complete.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText, TokenStream

SCHEMA: Final = 2
"""1: the last sample of a text was left out where it was shorter than half a sample."""
INDEX: Final = "index.json"
MAKE: Final = "python -m reference_trainer.lm.pretokenize"
SHARD_TOKENS: Final = 10_000_000
"""Tokens of a file, 20 MB at two bytes each: an interruption loses at most that many tokens."""
UINT16_VOCABULARY: Final = 1 << 16
"""Ids of a larger vocabulary take four bytes."""
REMOVE: Final = f"name another folder, or remove its {INDEX} and shard-*.bin"
"""Never the folder: it may hold other files."""
REPEAT: Final = f"{REMOVE} and make the shards again with {MAKE}"
ALIGNMENT: Final = 8  # bytes: of the offsets behind the ids
_OWN_KEY: Final = b'"corpus_sha256"'
"""Every index contains it, and no other program's index.json does."""
_OTHER_SCHEMA: Final = "other_schema"
"""The error of an index that another version wrote."""


class Shard(BaseModel, frozen=True, strict=True):
    """One finished file."""

    file: str
    samples: int = Field(ge=1)
    tokens: int = Field(ge=0)
    bytes: int
    sha256: str
    """Digest of the file, hexadecimal."""


class Index(BaseModel, frozen=True, strict=True):
    """The content of index.json."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    complete: bool = False
    """The shards hold the complete corpus."""
    tokenizer: str
    """Fingerprint of the tokenizer's model."""
    tokenizer_file: str = ""
    """Name of the user's file that holds the model; empty: the model was trained on the corpus."""
    corpus_sha256: str
    sample_chars: int
    """Largest number of characters of a sample."""
    corpus: str
    """Name of the corpus."""
    vocabulary: int
    dtype: str
    shard_tokens: int
    """A shard ends with the sample that brings it to so many tokens."""
    shards: tuple[Shard, ...] = ()

    @property
    def samples(self) -> int:
        """Samples in all shards."""
        return sum(shard.samples for shard in self.shards)

    @property
    def tokens(self) -> int:
        """Tokens in all shards."""
        return sum(shard.tokens for shard in self.shards)

    @field_validator("schema_version")
    @classmethod
    def _is_known(cls, schema: int) -> int:
        if schema != SCHEMA:
            raise PydanticCustomError(_OTHER_SCHEMA, "not the one that this version reads")
        return schema

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.dtype != _dtype(self.vocabulary):
            raise ValueError(f"its dtype is {self.dtype!r}, a vocabulary of {self.vocabulary} has another")
        for number, shard in enumerate(self.shards):
            name = shard_path(Path(), number).name
            if shard.file != name:
                raise ValueError(f"entry {number} of its shards does not name {name}")
            if shard.bytes != _offsets_at(shard, self.dtype) + np.dtype(np.int64).itemsize * (shard.samples + 1):
                raise ValueError(f"{name} cannot have {shard.bytes} bytes")
        return self

    def difference(self, planned: Index) -> str:
        """How the text of these shards differs from that of the planned ones; empty: not at all."""
        if self.corpus_sha256 != planned.corpus_sha256:  # first: another corpus has another tokenizer too
            ours, theirs = (f"{index.corpus} (SHA-256 {index.corpus_sha256[:16]}...)" for index in (self, planned))
            return f"of corpus {ours}, not {theirs}"
        if self.tokenizer != planned.tokenizer:
            ours, theirs = (
                f"{index.tokenizer}{f' ({index.tokenizer_file})' if index.tokenizer_file else ''}"
                for index in (self, planned)
            )
            return f"of tokenizer {ours}, not {theirs} (--tokenizer, --preset)"
        if self.sample_chars != planned.sample_chars:
            return (
                f"of samples of {self.sample_chars} characters, not {planned.sample_chars} "
                "(--tokens-per-chunk, --samples-per-chunk)"
            )
        return ""


def planned_index(text: ChunkedText, shard_tokens: int = SHARD_TOKENS) -> Index:
    """The index of a text's shards before the first one is written."""
    return Index(
        tokenizer=text.tokenizer.fingerprint,
        tokenizer_file=text.tokenizer.file,
        corpus_sha256=text.corpus.sha256,
        sample_chars=text.sample_chars,
        corpus=text.corpus.name,
        vocabulary=text.tokenizer.vocab_size,
        dtype=_dtype(text.tokenizer.vocab_size),
        shard_tokens=shard_tokens,
    )


def _dtype(vocabulary: int) -> str:
    return "uint16" if vocabulary <= UINT16_VOCABULARY else "uint32"


def shard_path(directory: Path, number: int) -> Path:
    """File of shard `number`, from 0."""
    return directory / f"shard-{number:05}.bin"


def _offsets_at(shard: Shard, dtype: str) -> int:
    """Byte at which the offsets of a shard begin."""
    return -(-shard.tokens * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT


def count(number: int, noun: str) -> str:
    """`1 shard`, `1,000 shards`."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


@contextmanager
def disk_errors(what: str | Path) -> Iterator[None]:
    """Turn errors of the disk into one line."""
    try:
        yield
    except OSError as error:
        raise TrainerError(f"{what}: {error.strerror or error}") from None


def read_index(directory: Path) -> Index:
    """The index of a folder of shards.

    :raises TrainerError: it is missing, damaged, another program's, or of another schema.
    """
    path = directory / INDEX
    with disk_errors(f"{path} cannot be read"):
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise TrainerError(f"{path} does not exist: make the shards with {MAKE} --output {directory}") from None
    try:
        return Index.model_validate_json(content)
    except ValidationError as error:
        if _OWN_KEY not in content:  # another program's file: never tell the user to remove it
            raise TrainerError(
                f"{directory} is not a folder of shards: {path} is not an index of them: name another"
            ) from None
        if other := next((fault for fault in error.errors() if fault["type"] == _OTHER_SCHEMA), None):
            cure = f"update it, or make the shards again with {MAKE}" if other["input"] > SCHEMA else REPEAT
            raise TrainerError(f"{path} has schema {other['input']}, this version reads {SCHEMA}: {cure}") from None
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Value error, ")
        where = ".".join(map(str, first["loc"]))
        raise TrainerError(f"{path} is damaged ({where}{': ' * bool(where)}{reason}): {REPEAT}") from None


def check_index(directory: Path, planned: Index | None = None) -> Index:
    """The index of a folder whose shards are complete, and of the planned text if there is one.

    :raises TrainerError: they are not.
    """
    index = read_index(directory)
    if planned and (difference := index.difference(planned)):
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

    :raises TrainerError: it is missing, cut short, or damaged.
    """
    path, shard = shard_path(directory, number), index.shards[number]
    with disk_errors(f"{path} cannot be read"):
        if not path.exists():
            raise TrainerError(f"{path} is missing: {REPEAT}")
        size = path.stat().st_size
        if size != shard.bytes:
            raise TrainerError(f"{path} is damaged: it has {size} bytes, not {shard.bytes}: {REPEAT}")
        # a view of the map as a plain array: slicing a np.memmap costs microseconds
        content = np.asarray(np.memmap(path, np.uint8, mode="r"))
    if hashlib.sha256(content.data).hexdigest() != shard.sha256:
        raise TrainerError(f"{path} is damaged: its SHA-256 is not that of {INDEX}: {REPEAT}")
    dtype = np.dtype(index.dtype).newbyteorder("<")
    ids = content[: shard.tokens * dtype.itemsize].view(dtype)
    return ids, content[_offsets_at(shard, index.dtype) :].view("<i8")


def load_pretokenized_dataset(path: str | Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the input ids and the target ids of each sample in a folder of shards: views of the mapped files.

    A target is the token after its input. A sample of less than two tokens has no target and is left out.

    :raises TrainerError: the shards are incomplete, missing, damaged, or of another schema.
    """
    directory = Path(path)
    index = check_index(directory)
    shards = [open_shard(directory, index, number) for number in range(len(index.shards))]
    return [
        (ids[begin : end - 1], ids[begin + 1 : end])
        for ids, offsets in shards
        for begin, end in pairwise(offsets.tolist())
        if end - begin > 1
    ]


class ShardChunks(TokenStream):
    """The same chunks as those of `Chunks`, read from shards."""

    def __init__(self, directory: Path, text: ChunkedText, *, verbose: bool = False) -> None:
        """Map the shards, and read each through once to check it.

        :raises TrainerError: they are of another text, incomplete, missing, damaged, or of another schema.
        """
        super().__init__(text)
        index = check_index(directory, planned_index(text))
        self._shards = [open_shard(directory, index, number) for number in range(len(index.shards))]
        self._starts = [0, *accumulate(shard.samples for shard in index.shards)]
        self._verbose = verbose

    def close(self) -> None:
        """Release the mapped files."""
        self._shards = []

    def group(self, number: int) -> np.ndarray:
        began = time.perf_counter()
        first = number * self._text.samples_per_chunk
        samples = range(len(self._samples))[first : first + self._text.samples_per_chunk]
        ids = np.concatenate([self._sample(self._text.begin + sample) for sample in samples]).astype(np.int32)
        if self._verbose:
            took = (time.perf_counter() - began) * 1e6
            print(f"Read {count(len(samples), 'sample')} from shards in {took:.1f} µs", flush=True)
        return ids

    def _sample(self, number: int) -> np.ndarray:
        shard = bisect_right(self._starts, number) - 1
        ids, offsets = self._shards[shard]
        first = number - self._starts[shard]
        return ids[offsets[first] : offsets[first + 1]]
