"""What a folder of token shards holds, and its index.

    index.json         schema, tokenizer, corpus, sample size, dtype; samples, tokens, bytes and SHA-256 of each shard
    shard-00000.bin    the ids of its samples, one after the other; zeros up to a multiple of 8 bytes; then, int64, the
    ...                token that each sample begins at, and the end of the last. All little-endian.

Every file is written beside its place and then put there, and a shard is in the index once it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from reference_trainer.errors import TrainerError

SCHEMA: Final = 1
"""1: as above."""
INDEX: Final = "index.json"
MAKE: Final = "python -m reference_trainer.lm.pretokenize"
UINT16_VOCABULARY: Final = 1 << 16
"""Ids of a larger vocabulary take four bytes."""

_ALIGNMENT: Final = 8  # bytes: the offsets behind the ids


@dataclass(frozen=True, slots=True)
class Origin:
    """What the shards are made of; shards of another origin are another text."""

    tokenizer: str
    """Fingerprint of its model."""
    corpus_sha256: str
    sample_chars: int
    """Most characters of a sample."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One finished file."""

    samples: int
    tokens: int
    bytes: int
    sha256: str
    """Of the whole file, hexadecimal."""


@dataclass(frozen=True, slots=True)
class Index:
    """All that index.json says."""

    origin: Origin
    corpus: str
    """Its name."""
    vocabulary: int
    shard_tokens: int
    """A shard ends with the sample that brings it to so many tokens."""
    shards: tuple[Shard, ...] = ()
    complete: bool = False
    """The whole corpus is in the shards."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<u2" if self.vocabulary <= UINT16_VOCABULARY else "<u4")

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.shards)

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self.shards)

    def difference(self, wanted: Origin, corpus: str = "") -> str:
        """What is not as wanted, in words; empty: nothing.

        :param corpus: name of the wanted one, where it is known.
        """
        seen = self.origin
        if seen.corpus_sha256 != wanted.corpus_sha256:  # first: another corpus has another tokenizer too
            name = f"{corpus} (SHA-256 {wanted.corpus_sha256[:16]}...)" if corpus else f"{wanted.corpus_sha256[:16]}..."
            return f"of corpus {self.corpus} (SHA-256 {seen.corpus_sha256[:16]}...), not {name}"
        if seen.tokenizer != wanted.tokenizer:
            return f"of tokenizer {seen.tokenizer}, not {wanted.tokenizer}"
        if seen.sample_chars != wanted.sample_chars:
            return (
                f"of samples of {seen.sample_chars} characters, not {wanted.sample_chars} "
                "(--tokens-per-chunk, --samples-per-chunk)"
            )
        return ""


def shard_path(directory: Path, number: int) -> Path:
    """File of shard `number`, from 0."""
    return directory / f"shard-{number:05}.bin"


def unfinished_name(name: str) -> str:
    """What a file is called until it is whole."""
    return f".{name}.new"


def offsets_at(tokens: int, dtype: np.dtype[Any]) -> int:
    """Byte at which the offsets of a shard begin."""
    return -(-tokens * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


def counted(number: int, what: str) -> str:
    """`1 shard`, `1,000 shards`."""
    return f"{number:,} {what}{'s' if number != 1 else ''}"


@contextmanager
def reported(path: Path, what: str = "") -> Iterator[None]:
    """Faults of the disk become one line."""
    try:
        yield
    except OSError as error:
        raise TrainerError(f"{what}{path}: {error.strerror or error}") from None


def write_index(directory: Path, index: Index) -> None:
    """Replace index.json, whole or not at all."""
    content = {
        "schema": SCHEMA,
        "complete": index.complete,
        **asdict(index.origin),
        "corpus": index.corpus,
        "vocabulary": index.vocabulary,
        "dtype": index.dtype.name,
        "shard_tokens": index.shard_tokens,
        "shards": [
            {
                "file": shard_path(directory, number).name,
                "samples": shard.samples,
                "tokens": shard.tokens,
                "bytes": shard.bytes,
                "sha256": shard.sha256,
            }
            for number, shard in enumerate(index.shards)
        ],
    }
    path = directory / INDEX
    temporary = path.with_name(unfinished_name(INDEX))
    with reported(path):
        temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
        temporary.replace(path)
