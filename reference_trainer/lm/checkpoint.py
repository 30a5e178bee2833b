"""A checkpoint: one file with all that the next steps depend on, put in its place whole or not at all.

    checkpoint.bin     a line of JSON (schema, step, origin, arrays), filled up to a multiple of 64 bytes; the arrays
                       one after the other, each from a multiple of 64 on, little-endian; SHA-256 of all before it
    .checkpoint.new    the next one, while it is written; then it takes the other's place

Whatever ends the program, and whenever, checkpoint.bin is one that was written to its end, and to the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from reference_trainer.errors import TrainerError

SCHEMA: Final = 1
"""1: as above. Whatever the schema, the first line and the SHA-256 at the end are there."""
FILE: Final = "checkpoint.bin"
NEW: Final = ".checkpoint.new"

_ANEW: Final = "remove it, and begin without --resume"
_ALIGNED: Final = 64  # bytes: what the devices' own memory begins at
_DIGEST: Final = 32  # bytes of a SHA-256
_LONGEST: Final = 1 << 20  # bytes: no first line is longer


@dataclass(frozen=True, slots=True)
class Origin:
    """The identity of a run: a checkpoint is refused if any field of its origin differs."""

    model: Mapping[str, int]
    corpus_sha256: str
    tokenizer: str
    """Fingerprint of the tokenizer's model."""
    tokens_per_chunk: int
    samples_per_chunk: int
    optimizer: Mapping[str, float]
    seed: int
    dtype: str

    def difference(self, wanted: Mapping[str, Any]) -> str:
        """Describe how this origin differs from `wanted`, which was read from a file; empty: not at all."""
        for field in fields(self):
            there, here = wanted.get(field.name), getattr(self, field.name)
            if isinstance(here, Mapping) and isinstance(there, Mapping):
                for name in here:
                    if here[name] != there.get(name):
                        return f"another {field.name} ({name} {there.get(name)}, not {here[name]})"
            if here != there:
                digests = (str(value)[:16] for value in (there, here))
                return "another {} ({}, not {})".format(field.name.replace("_", " "), *digests)
        return ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A learning run after a number of steps."""

    step: int
    """Steps done; which chunk of text is next follows from it."""
    device: str
    """Kind of the device that it was written on: another rounds differently."""
    arrays: Mapping[str, np.ndarray]


def read(folder: Path, origin: Origin) -> Checkpoint:
    """The checkpoint of `folder`.

    :raises TrainerError: there is none, it is damaged, of a newer schema, or of another origin.
    """
    path = folder / FILE
    try:
        content = np.fromfile(path, np.uint8)
    except FileNotFoundError:
        raise TrainerError(f"--resume: {folder} holds no checkpoint; leave --resume out to begin") from None
    except OSError as error:
        raise TrainerError(f"{path} cannot be read: {error.strerror or error}") from None
    if hashlib.sha256(content[:-_DIGEST].data).digest() != content[-_DIGEST:].tobytes():
        raise TrainerError(f"{path} is no checkpoint, damaged, or cut short: its SHA-256 is another: {_ANEW}")
    line, _, _ = content[:_LONGEST].tobytes().partition(b"\n")
    header = json.loads(line)
    if header["schema"] != SCHEMA:
        raise TrainerError(
            f"{path} is of schema {header['schema']}, this program reads {SCHEMA}: go on with the one that wrote it"
        )
    if different := origin.difference(header["origin"]):
        raise TrainerError(f"{path} is of {different}: give the options that it was made with, or another --checkpoint")
    arrays = {}
    for entry in header["arrays"]:
        begin, dtype, shape = len(line) + 1 + entry["begin"], np.dtype(entry["dtype"]), tuple(entry["shape"])
        arrays[entry["name"]] = content[begin : begin + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
    return Checkpoint(header["step"], header["device"], arrays)


def write(folder: Path, origin: Origin, checkpoint: Checkpoint) -> None:
    """Put the checkpoint in the place of the one before, which stays until this one is on the disk.

    The GIL is held for microseconds of it: threads may do this beside the training.

    :raises OSError: it cannot be written; the one before is as it was.
    """
    entries, size = [], 0
    for name, array in checkpoint.arrays.items():
        dtype = array.dtype.newbyteorder("<").str
        entries.append({"name": name, "dtype": dtype, "shape": array.shape, "begin": size})
        size += array.nbytes + -array.nbytes % _ALIGNED
    about = {"schema": SCHEMA, "step": checkpoint.step, "device": checkpoint.device, "origin": asdict(origin)}
    line = json.dumps({**about, "arrays": entries}).encode()
    parts: list[Any] = [line, b" " * (-(len(line) + 1) % _ALIGNED), b"\n"]
    for array in checkpoint.arrays.values():
        parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, bytes(-array.nbytes % _ALIGNED)]
    digest, new = hashlib.sha256(), folder / NEW
    try:
        with open(new, "wb", buffering=0) as file:
            for part in parts:
                digest.update(part)
                _write_all(file, part)
            _write_all(file, digest.digest())
            os.fsync(file.fileno())  # before the name changes: a name of what is not on the disk is worth nothing
        new.replace(folder / FILE)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_all(file: Any, part: Any) -> None:
    """Write everything: a nearly full disk writes a part first, and then fails."""
    remaining = memoryview(part)
    while remaining:
        remaining = remaining[file.write(remaining) :]
