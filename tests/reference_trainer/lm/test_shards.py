"""Chunks out of shards: bit for bit those of the text, with no tokenization; and shards that are not the right ones."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler import marks
from reference_trainer.errors import USAGE, TrainerError
from reference_trainer.lm import shard_writer as module
from reference_trainer.lm.chunks import Chunks, Source, sample_chars
from reference_trainer.lm.corpus import Corpus, Samples
from reference_trainer.lm.shard_writer import ensure_shards, locked, write_shards
from reference_trainer.lm.shards import SCHEMA, SHARD_TOKENS, Index, ShardChunks, planned_index, read_index
from reference_trainer.lm.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("own_cache")
TOKENS, SAMPLES = 400, 4


@dataclass
class Letters:
    """A tokenizer of any vocabulary: an id a character, the last ids too."""

    vocab_size: int
    fingerprint: str = "letters"
    chars_per_token: float = 1.0

    def encode_arrays(self, texts: list[str], num_threads: int = 1) -> list[np.ndarray]:
        return [np.array([self.vocab_size - 1 - ord(letter) % 100 for letter in text], np.int32) for text in texts]


@dataclass(frozen=True)
class Shards:
    """A folder for the shards of a text, how they are cut, and the chunks that they must give."""

    directory: Path
    corpus: Corpus
    tokenizer: Any
    tokens: int = TOKENS
    samples: int = SAMPLES

    def write(self, shard: int = SHARD_TOKENS, workers: int = 1) -> Index:
        planned = planned_index(self.corpus, self.tokenizer, self.tokens, self.samples, shard)
        samples = Samples(self.corpus, planned.sample_chars, self.samples)
        with locked(self.directory):
            return write_shards(self.directory, planned, samples, self.tokenizer, workers=workers)

    def open(self, **more: object) -> ShardChunks:
        """As training opens them."""
        planned = planned_index(self.corpus, self.tokenizer, self.tokens, self.samples)
        return ShardChunks(self.directory, planned, self.tokens, **{"samples_per_chunk": self.samples, **more})

    def text(self) -> Chunks:
        return Chunks(self.corpus, self.tokenizer, self.tokens, self.samples, batch=True)

    def ensure(self, directory: Path | None = None, **changed: object) -> Path:
        """What the trainer asks for: the folder of the user's, or one in the cache."""
        it = replace(self, **changed)
        return ensure_shards(it.corpus, it.tokenizer, it.tokens, it.samples, *([directory] if directory else ()))


@pytest.fixture
def shards(tmp_path: Path, corpus: Corpus, tokenizer: Tokenizer) -> Shards:
    return Shards(tmp_path, corpus, tokenizer)


def outcome(source: Source, index: int) -> np.ndarray | str:
    """The ids of a chunk, or in which words it was refused."""
    try:
        return source.ids(index)
    except TrainerError as error:
        return str(error)


def same(expected: Source, observed: Source, indices: range) -> int:
    """Hold every chunk against the text's; how many were refused by both alike."""
    refused = 0
    for index in indices:
        text, read = outcome(expected, index), outcome(observed, index)
        if isinstance(text, str):
            assert read == text
            refused += 1
        else:
            assert isinstance(read, np.ndarray), read
            assert read.dtype == np.int32
            assert np.array_equal(read, text), f"chunk {index}"
    return refused


@pytest.mark.parametrize(
    ("tokens", "samples", "shard"),
    [
        (tokens, samples, shard)
        for tokens, samples in ((400, 4), (37, 1), (3_000, 8), (101, 7))
        for shard in (SHARD_TOKENS, 1_500)
    ]
    + [(400, 4, 1)],  # a shard a sample
)
def test_chunks_are_those_of_the_text(shards: Shards, tokens: int, samples: int, shard: int) -> None:
    shards = replace(shards, tokens=tokens, samples=samples)
    index, expected, observed = shards.write(shard), shards.text(), shards.open()
    assert len(index.shards) == 1 if shard == SHARD_TOKENS else len(index.shards) > 10, "also over the edges of shards"
    epoch = -(-index.samples // samples)
    assert not same(expected, observed, range(epoch + 3)), "over the end of the text too"
    assert not same(expected, observed, range(10**9, 10**9 + 3))


def test_chunk_of_one_token(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Some samples of a few letters are one token, and have nothing to predict: refused in the same words."""
    short = Corpus("short", "an even shorter text of the and of it " * 9, "0" * 64, 1)
    shards = Shards(tmp_path, short, tokenizer, 1, 1)
    shards.write(shard=5)
    refused = same(shards.text(), shards.open(), range(90))
    assert 0 < refused < 90, refused


def test_same_samples_in_other_chunks(shards: Shards) -> None:
    """What is written are samples: chunks of more samples of the same size need no other shards."""
    shards.write(shard=3_000)
    assert sample_chars(shards.tokenizer, 800, 8) == sample_chars(shards.tokenizer, 400, 4)
    twice = replace(shards, tokens=800, samples=8)
    same(twice.text(), twice.open(), range(50))


@pytest.mark.parametrize(("vocabulary", "dtype"), [(200, "uint16"), (65_536, "uint16"), (65_537, "uint32")])
def test_bytes_of_an_id_go_by_the_vocabulary(tmp_path: Path, corpus: Corpus, vocabulary: int, dtype: str) -> None:
    shards = Shards(tmp_path, corpus, Letters(vocabulary))
    index = shards.write(shard=9_999)
    assert index.dtype == json.loads((tmp_path / "index.json").read_text())["dtype"] == dtype
    observed = shards.open()
    same(shards.text(), observed, range(200))
    assert max(observed.ids(number).max() for number in range(20)) > vocabulary - 100


def test_samples_without_a_token(tmp_path: Path) -> None:
    @dataclass
    class Sparse(Letters):
        def encode_arrays(self, texts: list[str], num_threads: int = 1) -> list[np.ndarray]:
            return [
                ids if "x" in text else ids[:0] for text, ids in zip(texts, super().encode_arrays(texts), strict=True)
            ]

    corpus = Corpus("sparse", "aaaa bbbx cccc dddd xxxx eeee ", "1" * 64, 1)
    shards = Shards(tmp_path, corpus, Sparse(200), 10, 2)
    shards.write(shard=6)
    assert same(shards.text(), shards.open(), range(9)) == 3, "chunk 1 of each epoch is empty"


@pytest.mark.parametrize("workers", [1, 3])
def test_worker_that_fails_is_one_line(tmp_path: Path, workers: int) -> None:
    @dataclass
    class Failing(Letters):
        def encode_arrays(self, texts: list[str], num_threads: int = 1) -> list[np.ndarray]:
            if any("x" in text for text in texts):
                raise RuntimeError("no more\nmemory")
            return super().encode_arrays(texts)

    corpus = Corpus("failing", "abcd " * 200_000 + "xxxx " * 200_000, "4" * 64, 1)
    statement = r"samples \d+ to \d+: their tokenizing worker failed: RuntimeError: no more memory$"
    with pytest.raises(TrainerError, match=statement):
        Shards(tmp_path, corpus, Failing(200)).write(shard=50_000, workers=workers)
    remaining = read_index(tmp_path)
    assert remaining.shards
    assert not remaining.complete
    assert not list(tmp_path.glob("*.new"))


def test_nothing_is_tokenized(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    shards.write()
    chunks = shards.open()
    regions: list[str] = []
    counted: list[str] = []
    monkeypatch.setattr(marks, "region", lambda name: regions.append(name) or nullcontext())
    monkeypatch.setattr(marks, "count", lambda name, amount=1: counted.append(name))
    chunks.ids(0)
    assert (regions, counted) == (["data"], [])


def test_verbose_says_what_reading_took(shards: Shards, capsys: pytest.CaptureFixture[str]) -> None:
    shards.write()
    shards.open().ids(0)
    assert capsys.readouterr().out == ""
    shards.open(verbose=True).ids(0)
    assert capsys.readouterr().out.startswith("Read 4 samples from shards in ")


def test_closed_twice_and_the_ids_stay(shards: Shards) -> None:
    shards.write()
    chunks = shards.open()
    ids = chunks.ids(0)
    before = ids.copy()
    chunks.close()
    chunks.close()
    assert np.array_equal(ids, before)


# ---------------------------------------------------------------- shards that are not the right ones


def changed(**fields: object) -> Callable[[Path], None]:
    """A change of fields of the index."""

    def change(directory: Path) -> None:
        path = directory / "index.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def flip(name: str, position: float) -> Callable[[Path], None]:
    """A bit that turned over, at this share of the file."""

    def change(directory: Path) -> None:
        content = bytearray((directory / name).read_bytes())
        content[int(position * (len(content) - 1))] ^= 1
        (directory / name).write_bytes(content)

    return change


def cut(name: str, by: int) -> Callable[[Path], None]:
    return lambda directory: (directory / name).write_bytes((directory / name).read_bytes()[:-by]) and None


def longer(directory: Path) -> None:
    with open(directory / "shard-00001.bin", "ab") as file:
        file.write(b"\0")


NOT_OURS = "is not a folder of shards"


def entry(field: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """A change of a field of the second shard in the index."""

    def changed_entry(directory: Path) -> None:
        shards = json.loads((directory / "index.json").read_text())["shards"]
        shards[1][field] = change(shards[1][field])
        changed(shards=shards)(directory)

    return changed_entry


misnamed = entry("file", lambda _: "shard-1.bin")


@pytest.mark.parametrize(
    ("damage", "file", "statement", "cure"),
    [
        (lambda d: (d / "index.json").unlink(), "index.json", "does not exist", "make the shards with"),
        (lambda d: (d / "shard-00001.bin").unlink(), "shard-00001.bin", "is missing", "again"),
        (cut("shard-00001.bin", 1), "shard-00001.bin", "is cut short", "again"),
        (longer, "shard-00001.bin", "is damaged: it has", "again"),
        (flip("shard-00000.bin", 0), "shard-00000.bin", "is damaged: its SHA-256", "again"),
        (flip("shard-00001.bin", 0.5), "shard-00001.bin", "is damaged: its SHA-256", "again"),
        (flip("shard-00001.bin", 1), "shard-00001.bin", "is damaged: its SHA-256", "again"),
        (cut("index.json", 30), "index.json", "is damaged (it is cut short or no JSON)", "again"),
        (lambda d: (d / "index.json").write_text("[]"), "index.json", NOT_OURS, "name another"),
        (lambda d: (d / "index.json").write_text("{}"), "index.json", NOT_OURS, "name another"),
        (lambda d: (d / "index.json").write_text("\n"), "index.json", NOT_OURS, "name another"),
        (lambda d: (d / "index.json").write_text('{"schema": 1}'), "index.json", NOT_OURS, "name another"),
        (lambda d: (d / "index.json").write_bytes(b"\xff{"), "index.json", NOT_OURS, "name another"),
        (changed(schema="x"), "index.json", NOT_OURS, "name another"),
        (changed(shards=[1]), "index.json", "is damaged (shards.0: ", "again"),
        (changed(shards=None), "index.json", "is damaged (shards: ", "again"),
        (changed(complete=0), "index.json", "is damaged (complete: ", "again"),
        (changed(sample_chars="9"), "index.json", "is damaged (sample_chars: ", "again"),
        (changed(dtype="uint32"), "index.json", "is damaged (its dtype is 'uint32'", "again"),
        (misnamed, "index.json", "is damaged (its entry 1 of shards is not of shard-00001.bin)", "again"),
        (entry("tokens", lambda tokens: tokens - 8), "index.json", "shard-00001.bin cannot be of", "again"),
        (changed(schema=SCHEMA + 1), "index.json", f"has schema {SCHEMA + 1}, this version reads up to", "update it"),
        (changed(complete=False), "index.json", "are not complete", "goes on from there"),
        (changed(complete=False, shards=[]), "index.json", "are not complete, 0 finished", "goes on from there"),
        (changed(tokenizer="feed"), "index.json", "of tokenizer feed, not ", "name another folder"),
        (changed(corpus_sha256="beef", tokenizer="x"), "index.json", "of corpus small.txt (SHA-256 beef", "folder"),
        (changed(sample_chars=9), "index.json", "of samples of 9 characters, not ", "name another folder"),
    ],
)
def test_refused_in_one_line(
    tmp_path: Path, shards: Shards, damage: Callable[[Path], None], file: str, statement: str, cure: str
) -> None:
    shards.write(shard=9_000)
    shards.open().close()
    damage(tmp_path)
    with pytest.raises(TrainerError) as caught:
        shards.open()
    message = str(caught.value)
    assert caught.value.exit_code == USAGE
    assert "\n" not in message
    assert str(tmp_path / file) in message
    assert statement in message
    assert cure in message
    assert f"remove {tmp_path}" not in message
    assert statement != NOT_OURS or "remove" not in message


def test_no_folder(tmp_path: Path, shards: Shards) -> None:
    (tmp_path / "file").write_text("not a folder")
    for name in ("none", "file"):
        with pytest.raises(TrainerError, match=rf"{name}/index\.json does not exist: make the shards with python -m"):
            replace(shards, directory=tmp_path / name).open()


def test_too_few_samples_for_a_chunk(shards: Shards) -> None:
    largest = shards.write().samples
    shards.open(samples_per_chunk=largest).ids(3)
    with pytest.raises(TrainerError, match=rf"{largest} samples, too few for a chunk of {largest + 1}"):
        shards.open(samples_per_chunk=largest + 1)


# ---------------------------------------------------------------- made when need be


def test_made_in_the_cache_once(tmp_path: Path, shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    created = shards.ensure()
    assert created.parent == tmp_path / "training-profiler" / "shards"
    same(shards.text(), replace(shards, directory=created).open(), range(50))
    assert shards.ensure(tokens=500) != created
    assert shards.ensure(corpus=replace(shards.corpus, sha256="2" * 64)) != created
    monkeypatch.setattr(module, "write_shards", None)
    assert shards.ensure() == created


@pytest.mark.parametrize(
    "damage",
    [
        flip("shard-00000.bin", 0.5),
        cut("index.json", 9),
        changed(complete=False),
        lambda d: (d / "index.json").unlink(),
        lambda d: (d / "shard-00000.bin").unlink(),
    ],
)
def test_cache_mends_itself(
    tmp_path: Path,
    shards: Shards,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    created = shards.ensure()
    index, content = read_index(created), (created / "shard-00000.bin").read_bytes()
    damage(created)
    reported = (created / "index.json").exists()
    with caplog.at_level(logging.WARNING):
        assert shards.ensure() == created
    assert ("making cached shards again: " in caplog.text) == reported
    assert (read_index(created), (created / "shard-00000.bin").read_bytes()) == (index, content)


def test_a_folder_of_the_users_is_taken_or_refused(tmp_path: Path, corpus: Corpus, shards: Shards) -> None:
    shards.write()
    assert shards.ensure(tmp_path) == tmp_path
    message = rf"of corpus small\.txt \(SHA-256 {corpus.sha256[:16]}\.\.\.\), not small\.txt \(SHA-256 3333"
    with pytest.raises(TrainerError, match=message):
        shards.ensure(tmp_path, corpus=replace(corpus, sha256="3" * 64))
    with pytest.raises(TrainerError, match=r"none/index\.json does not exist: make the shards with"):
        shards.ensure(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_no_cache_that_can_be_written(tmp_path: Path, shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(TrainerError, match=r"shards cannot be written to .*: Not a directory"):
        shards.ensure()
