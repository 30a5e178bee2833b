"""Chunks read from shards: bit for bit those of the text, without tokenization; and shards that are refused."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm import shard_writer
from reference_trainer.lm.chunks import ChunkedText, Chunks
from reference_trainer.lm.shard_writer import ensure_shards, write_shards
from reference_trainer.lm.shards import SCHEMA, SHARD_TOKENS, ShardChunks, load_pretokenized_dataset, read_index
from tests.reference_trainer.lm.sources import Letters, assert_same, made_up
from tests.reference_trainer.processes import refusal

pytestmark = pytest.mark.usefixtures("own_cache")


def compare(folder: Path, text: ChunkedText, chunks: range) -> int:
    """The shards of a folder give the text's chunks; the number that both refuse."""
    return assert_same(Chunks(text, batch=True), ShardChunks(folder, text), chunks)


@pytest.mark.parametrize(
    ("tokens", "samples", "shard"),
    [*((*size, shard) for size in ((400, 4), (37, 1), (3_000, 8), (101, 7)) for shard in (SHARD_TOKENS, 1_500)),
     (400, 4, 1)],
)  # fmt: skip
def test_chunks_are_those_of_the_text(tmp_path: Path, text: ChunkedText, tokens: int, samples: int, shard: int) -> None:
    text = replace(text, tokens_per_chunk=tokens, samples_per_chunk=samples)
    index = write_shards(tmp_path, text, shard)
    assert len(index.shards) == 1 if shard == SHARD_TOKENS else len(index.shards) > 10, "also over the edges of shards"
    epoch = -(-index.tokens // tokens)
    assert not compare(tmp_path, text, range(epoch + 3)), "also over the end of the text"
    assert not compare(tmp_path, text, range(10**9, 10**9 + 3))


def test_chunks_of_more_samples_need_no_other_shards(tmp_path: Path, text: ChunkedText) -> None:
    write_shards(tmp_path, text, 3_000)
    twice = replace(text, tokens_per_chunk=800, samples_per_chunk=8)
    assert twice.sample_chars == text.sample_chars
    compare(tmp_path, twice, range(50))


def test_pretokenized_samples_are_views_of_the_shards(tmp_path: Path, text: ChunkedText) -> None:
    index = write_shards(tmp_path, text, 1_500)
    samples = load_pretokenized_dataset(str(tmp_path))
    assert len(samples) == index.samples
    for (inputs, targets), sample in zip(samples, text.samples, strict=True):
        assert not inputs.flags.owndata
        assert not targets.flags.owndata
        assert [*inputs.tolist(), targets[-1]] == text.tokenizer.encode(sample)
        assert np.array_equal(inputs[1:], targets[:-1])
    path = tmp_path / "index.json"
    path.write_text(path.read_text().replace('"complete": true', '"complete": false'))
    assert "these shards are not complete" in refusal(load_pretokenized_dataset, tmp_path)


def test_samples_without_tokens(tmp_path: Path) -> None:
    class Sparse(Letters):
        def encode_arrays(self, texts: list[str], threads: object = None) -> list[np.ndarray]:
            arrays = super().encode_arrays(texts)
            return [ids if "x" in sample else ids[:0] for sample, ids in zip(texts, arrays, strict=True)]

    sparse = made_up("aaaa bbbx cccc dddd xxxx eeee ", Sparse(), 10, 2)
    write_shards(tmp_path / "sparse", sparse, 6)
    assert not compare(tmp_path / "sparse", sparse, range(9))


def test_a_part_of_the_text_is_read_from_the_shards_of_all(tmp_path: Path, text: ChunkedText) -> None:
    write_shards(tmp_path, text, 3_000)
    for part in (text.only(0, 21), text.only(13, None), text.only(5, 40)):
        assert not compare(tmp_path, part, range(30))


@pytest.mark.parametrize(("vocabulary", "dtype"), [(200, "uint16"), (65_536, "uint16"), (65_537, "uint32")])
def test_the_vocabulary_decides_the_bytes_of_an_id(
    tmp_path: Path, small_text: str, vocabulary: int, dtype: str
) -> None:
    text = made_up(small_text, Letters(vocabulary), 400, 4)
    assert write_shards(tmp_path, text, 9_999).dtype == dtype
    compare(tmp_path, text, range(200))
    assert max(ShardChunks(tmp_path, text).ids(number).max() for number in range(20)) > vocabulary - 100


def test_a_shard_ends_with_the_sample_that_fills_it(tmp_path: Path) -> None:
    index = write_shards(tmp_path, made_up("aaaa bbbb cccc dddd eeee ", Letters(), 5, 1), 10)
    assert [(shard.samples, shard.tokens) for shard in index.shards] == [(2, 10), (2, 10), (1, 5)]


@pytest.mark.parametrize("workers", [1, 3])
def test_worker_that_fails_is_one_line(tmp_path: Path, workers: int) -> None:
    class Failing(Letters):
        def encode_arrays(self, texts: list[str], threads: object = None) -> list[np.ndarray]:
            if any("x" in text for text in texts):
                raise RuntimeError("no more\nmemory")
            return super().encode_arrays(texts)

    text = made_up("abcd " * 200_000 + "xxxx " * 200_000, Failing(), 400, 4)
    message = r"samples \d+ to \d+: its tokenizing worker failed: RuntimeError: no more memory$"
    with pytest.raises(TrainerError, match=message):
        write_shards(tmp_path, text, 50_000, workers=workers)
    index = read_index(tmp_path)
    assert index.shards
    assert not index.complete
    assert not list(tmp_path.glob("*.new"))


def test_reading_tokenizes_nothing_and_ids_outlive_the_source(
    tmp_path: Path, text: ChunkedText, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shards(tmp_path, text, SHARD_TOKENS)
    chunks, events = ShardChunks(tmp_path, text), []
    monkeypatch.setattr(marks, "region", lambda name: events.append(name) or nullcontext())
    monkeypatch.setattr(marks, "count", lambda name, amount=1: events.append(name))
    ids = chunks.ids(0)
    assert (events, capsys.readouterr().out) == (["data"], "")
    before = ids.copy()
    chunks.close()
    chunks.close()
    assert np.array_equal(ids, before)
    ShardChunks(tmp_path, text, verbose=True).ids(0)
    assert capsys.readouterr().out.startswith("Read 4 samples from shards in ")


# ---------------------------------------------------------------- shards that are refused

Damage = Callable[[Path], object]
FIRST, SECOND, INDEX = "shard-00000.bin", "shard-00001.bin", "index.json"


def changed(**fields: object) -> Damage:
    """A change of fields of the index."""

    def change(folder: Path) -> None:
        path = folder / INDEX
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def entry(field: str, change: Callable[[Any], Any]) -> Damage:
    """A change of a field of the second shard in the index."""

    def change_entry(folder: Path) -> None:
        shards = json.loads((folder / INDEX).read_text())["shards"]
        shards[1][field] = change(shards[1][field])
        changed(shards=shards)(folder)

    return change_entry


def content(name: str, change: Callable[[bytes], bytes]) -> Damage:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def flip(name: str, position: float) -> Damage:
    """One other bit, at this share of the file."""

    def flipped(data: bytes) -> bytes:
        at = int(position * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return content(name, flipped)


def missing(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


DAMAGED = "is damaged ("
REMADE = ("name another folder", f"remove its {INDEX} and shard-*.bin", "make the shards again with python -m")


@pytest.mark.parametrize(
    ("damage", "file", "message", "cure"),
    [
        (missing(INDEX), INDEX, "does not exist", ("make the shards with",)),
        (missing(SECOND), SECOND, "is missing", REMADE),
        (content(SECOND, lambda data: data[:-1]), SECOND, "is damaged: it has", REMADE),
        (content(SECOND, lambda data: data + b"\0"), SECOND, "is damaged: it has", REMADE),
        (flip(FIRST, 0), FIRST, "is damaged: its SHA-256", REMADE),
        (flip(SECOND, 0.5), SECOND, "is damaged: its SHA-256", REMADE),
        (flip(SECOND, 1), SECOND, "is damaged: its SHA-256", REMADE),
        *(
            (content(INDEX, lambda _, other=other: other), INDEX, "is not an index of them: name another", ())
            for other in (b"", b"[]", b"{}", b"\n", b'{"schema": 1}', b"\xff{", b"<html>", b"[" * 100_000)
        ),
        (content(INDEX, lambda data: data[:-30]), INDEX, f"{DAMAGED}Invalid JSON: ", REMADE),
        (changed(schema="x"), INDEX, f"{DAMAGED}schema: ", REMADE),
        (changed(shards=[1]), INDEX, f"{DAMAGED}shards.0: ", REMADE),
        (changed(shards=None), INDEX, f"{DAMAGED}shards: ", REMADE),
        (changed(complete=0), INDEX, f"{DAMAGED}complete: ", REMADE),
        (changed(sample_chars="9"), INDEX, f"{DAMAGED}sample_chars: ", REMADE),
        (changed(dtype="uint32"), INDEX, f"{DAMAGED}its dtype is 'uint32'", REMADE),
        (entry("file", lambda _: "shard-1.bin"), INDEX, f"entry 1 of its shards does not name {SECOND}", REMADE),
        (entry("tokens", lambda tokens: tokens - 8), INDEX, f"{SECOND} cannot have", REMADE),
        (
            changed(schema=SCHEMA + 1, tokenizer=None),
            INDEX,
            f"has schema {SCHEMA + 1}, this version reads {SCHEMA}: update it, or ",
            (),
        ),
        (changed(schema=1), INDEX, f"has schema 1, this version reads {SCHEMA}: ", REMADE),
        (changed(complete=False), INDEX, "are not complete", ("goes on from there",)),
        (changed(complete=False, shards=[]), INDEX, "are not complete, 0 finished", ("goes on from there",)),
        (changed(tokenizer="feed"), INDEX, "of tokenizer feed, not ", ("name another folder",)),
        (changed(corpus_sha256="beef", tokenizer="x"), INDEX, "of corpus small.txt (SHA-256 beef", ("folder",)),
        (changed(sample_chars=9), INDEX, "of samples of 9 characters, not ", ("name another folder",)),
    ],
)
def test_refused_in_one_line(
    tmp_path: Path, text: ChunkedText, damage: Damage, file: str, message: str, cure: tuple[str, ...]
) -> None:
    write_shards(tmp_path, text, 9_000)
    ShardChunks(tmp_path, text).close()
    damage(tmp_path)
    line = refusal(ShardChunks, tmp_path, text)
    assert f"remove {tmp_path}" not in line
    assert ("remove" in line) == (cure is REMADE), "files of other programs and later versions stay"
    for part in (str(tmp_path / file), message, *cure):
        assert part in line


def test_an_index_without_finished_shards_is_compared_too(tmp_path: Path, text: ChunkedText) -> None:
    write_shards(tmp_path, text, 9_000)
    changed(complete=False, shards=[])(tmp_path)
    other = replace(text, corpus=replace(text.corpus, sha256="2" * 64))
    with pytest.raises(TrainerError, match=r"holds other shards, of corpus"):
        write_shards(tmp_path, other, 9_000)
    assert read_index(tmp_path).corpus_sha256 == text.corpus.sha256


def test_no_folder(tmp_path: Path, text: ChunkedText) -> None:
    (tmp_path / "file").write_text("not a folder")
    for name in ("none", "file"):
        for use in (lambda folder: ShardChunks(folder, text), lambda folder: ensure_shards(text, folder)):
            with pytest.raises(TrainerError, match=rf"{name}/index\.json does not exist: make the shards with python"):
                use(tmp_path / name)
    assert not (tmp_path / "none").exists()


def test_too_few_samples_for_a_chunk(tmp_path: Path, text: ChunkedText) -> None:
    largest = write_shards(tmp_path, text, SHARD_TOKENS).samples
    for samples in (largest, largest + 1):  # of the same size
        wider = replace(text, samples_per_chunk=samples, tokens_per_chunk=100 * samples)
        assert wider.sample_chars == text.sample_chars
        if samples == largest:
            ShardChunks(tmp_path, wider).ids(3)
            continue
        with pytest.raises(TrainerError, match=rf"too short for one chunk: {largest + 1} samples"):
            ShardChunks(tmp_path, wider)


# ---------------------------------------------------------------- the shards in the cache


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "training-profiler" / "shards"


def test_made_in_the_cache_once(empty_cache: Path, text: ChunkedText, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ensure_shards(text)
    assert folder.parent == empty_cache
    compare(folder, text, range(50))
    assert ensure_shards(replace(text, tokens_per_chunk=500)) != folder
    assert ensure_shards(replace(text, corpus=replace(text.corpus, sha256="2" * 64))) != folder
    monkeypatch.setattr(shard_writer, "_write_shards", None)
    assert ensure_shards(text) == folder


@pytest.mark.parametrize(
    "damage", [flip(FIRST, 0.5), flip(INDEX, 0), changed(complete=False), missing(INDEX), missing(FIRST)]
)
def test_the_cache_is_repaired(
    empty_cache: Path, text: ChunkedText, caplog: pytest.LogCaptureFixture, damage: Damage
) -> None:
    folder = ensure_shards(text)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    damage(folder)
    reported = (folder / INDEX).exists()
    with caplog.at_level(logging.WARNING):
        assert ensure_shards(text) == folder
    assert ("making cached shards again: " in caplog.text) == reported
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_of_the_user_is_taken_or_refused(tmp_path: Path, text: ChunkedText) -> None:
    write_shards(tmp_path, text, SHARD_TOKENS)
    assert ensure_shards(text, tmp_path) == tmp_path
    ours = re.escape(f"of corpus small.txt (SHA-256 {text.corpus.sha256[:16]}...), not small.txt (SHA-256 3333")
    with pytest.raises(TrainerError, match=ours):
        ensure_shards(replace(text, corpus=replace(text.corpus, sha256="3" * 64)), tmp_path)


def test_a_cache_that_cannot_be_written(tmp_path: Path, text: ChunkedText, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(TrainerError, match=r"shards cannot be written to .*: Not a directory"):
        ensure_shards(text)
