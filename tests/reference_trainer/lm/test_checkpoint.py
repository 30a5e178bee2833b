"""The file of a checkpoint: every bit comes back, nothing half-written counts, and none but the right one is taken."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference_trainer.lm import snapshots as module
from reference_trainer.lm.snapshots import FILE, NEW, SCHEMA, Checkpoint, read, write
from tests.reference_trainer.processes import refusal

ORIGIN = {
    "model": {"width": 32, "layers": 2, "vocabulary": 256},
    "corpus_sha256": "ab" * 32,
    "tokenizer": "0123456789abcdef",
    "tokens_per_chunk": 300,
    "samples_per_chunk": 4,
    "optimizer": {"rate": 0.01, "warmup": 50, "eps": 1e-8},
    "seed": 0,
    "dtype": "float32",
}


def checkpoint(step: int = 7) -> Checkpoint:
    random = np.random.default_rng(step)
    arrays = {
        "parameters": random.standard_normal(1001).astype(np.float32),
        "state": random.standard_normal((2, 3)).astype(np.float32),
        "history": np.array([[1, np.nan], [2, np.inf]]),
        "none": np.zeros((0, 7)),
    }
    return Checkpoint(step, "host", arrays)


def same(item: Checkpoint, another: Checkpoint) -> bool:
    assert (item.step, item.device, item.arrays.keys()) == (another.step, another.device, another.arrays.keys())
    return all(
        array.dtype == another.arrays[name].dtype
        and array.shape == another.arrays[name].shape
        and array.tobytes() == another.arrays[name].tobytes()
        for name, array in item.arrays.items()
    )


def test_every_bit_comes_back(tmp_path: Path) -> None:
    write(tmp_path, ORIGIN, checkpoint())
    header = json.loads((tmp_path / FILE).read_bytes().split(b"\n", 1)[0])
    assert (header["schema"], header["step"], header["origin"]) == (SCHEMA, 7, ORIGIN)
    result = read(tmp_path, ORIGIN)
    assert same(result, checkpoint())
    for array in result.arrays.values():
        assert array.flags.aligned, "a device takes no other"
        assert array.flags.c_contiguous
        assert array.flags.writeable
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("share", [0, 0.001, 0.01, 0.1, 0.2, 0.5, 0.9, 0.99, 0.9999])
def test_a_flipped_bit_and_a_cut_are_refused(tmp_path: Path, share: float) -> None:
    write(tmp_path, ORIGIN, checkpoint())
    content = (tmp_path / FILE).read_bytes()
    at = int(share * len(content))
    for damaged in (content[:at], content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]):
        (tmp_path / FILE).write_bytes(damaged)
        assert "damaged" in refusal(read, tmp_path, ORIGIN)


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"{}\n", b"[1]\n" + b"y" * 100, b"\xff\xfe\n", b"\n" * 40])
def test_another_file_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert "is no checkpoint, damaged, or cut short" in refusal(read, tmp_path, ORIGIN)


def test_a_newer_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "SCHEMA", SCHEMA + 1)
        write(tmp_path, ORIGIN, checkpoint())
    assert f"is of schema {SCHEMA + 1}, this program reads {SCHEMA}" in refusal(read, tmp_path, ORIGIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"width": 256, "layers": 2, "vocabulary": 256}}, "another model (width 32, not 256)"),
        ({"corpus_sha256": "cd" * 32}, "another corpus sha256 (abababababababab, not cdcdcdcdcdcdcdcd)"),
        ({"tokenizer": "fedcba9876543210"}, "another tokenizer (0123456789abcdef, not fedcba9876543210)"),
        ({"tokens_per_chunk": 3000}, "another tokens per chunk (300, not 3000)"),
        ({"samples_per_chunk": 8}, "another samples per chunk (4, not 8)"),
        ({"optimizer": {"rate": 0.02, "warmup": 50, "eps": 1e-8}}, "another optimizer (rate 0.01, not 0.02)"),
        ({"optimizer": {"rate": 0.01, "warmup": 50}}, "another optimizer ("),
        ({"seed": 1}, "another seed (0, not 1)"),
        ({"dtype": "float64"}, "another dtype (float32, not float64)"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write(tmp_path, ORIGIN, checkpoint())
    assert message in refusal(read, tmp_path, {**ORIGIN, **change})


def test_a_missing_checkpoint_is_one_line(tmp_path: Path) -> None:
    assert "holds no checkpoint; leave --resume out" in refusal(read, tmp_path, ORIGIN)
    (tmp_path / FILE).mkdir()
    assert "cannot be read: Is a directory" in refusal(read, tmp_path, ORIGIN)


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_where_there_is_no_room_the_one_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    write(tmp_path, ORIGIN, checkpoint(1))

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    owner, name = {"write": (module, "_write_all"), "fsync": (os, "fsync"), "replace": (Path, "replace")}[fails]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full)
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path, ORIGIN, checkpoint(2))
    assert same(read(tmp_path, ORIGIN), checkpoint(1))
    assert [path.name for path in tmp_path.iterdir()] == [FILE], "nothing half-written takes up the room"


def test_the_name_changes_when_all_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a killed writer left a part of a file."""
    write(tmp_path, ORIGIN, checkpoint(1))
    (tmp_path / NEW).write_bytes((tmp_path / FILE).read_bytes()[:500])
    assert read(tmp_path, ORIGIN).step == 1
    done: list[str] = []
    fsync, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda number: (done.append("fsync"), fsync(number)))
    monkeypatch.setattr(Path, "replace", lambda path, to: (done.append("replace"), rename(path, to)))
    write(tmp_path, ORIGIN, checkpoint(2))
    assert done == ["fsync", "replace", "fsync"], "the file, its name, and the folder that holds the name"
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert same(read(tmp_path, ORIGIN), checkpoint(2))
