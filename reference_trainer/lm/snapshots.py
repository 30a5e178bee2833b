"""A checkpoint: one file with all that the next steps depend on, put in its place whole or not at all.

    checkpoint.bin     a line of JSON (schema, step, origin, arrays), filled up to a multiple of 64 bytes; the arrays
                       one after the other, each from a multiple of 64 on, little-endian; SHA-256 of all before it
    .checkpoint.new    the next one, while it is written; then it takes the other's place

Whatever ends the program, and whenever, checkpoint.bin is one that was written to its end, and to the disk.

During training the device copies the buffers in its queue, and a background thread writes them. What the steps pay for
one is the device's copy to pinned memory, and what the writer takes of the machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from profiler import marks
from reference_trainer.devices.protocol import Buffer, Device
from reference_trainer.errors import TrainerError

SCHEMA: Final = 1
"""1: as above. Whatever the schema, the first line and the SHA-256 at the end are there."""
FILE: Final = "checkpoint.bin"
NEW: Final = ".checkpoint.new"

_ANEW: Final = "remove it, and begin without --resume"
_ALIGNED: Final = 64  # bytes: what the devices' own memory begins at
_DIGEST: Final = 32  # bytes of a SHA-256
_LONGEST: Final = 1 << 20  # bytes: no first line is longer
HISTORY: Final = "history"
"""Name of the rows of metrics among a checkpoint's arrays."""
_LOCK: Final = ".lock"


Origin = Mapping[str, Any]
"""The identity of a run by name: a checkpoint is refused if any part of its origin differs."""


def _difference(origin: Origin, wanted: Origin) -> str:
    """Describe how the origin in a file differs from that of this run; empty: not at all."""
    for name, here in wanted.items():
        there = origin.get(name)
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            for part in here:
                if here[part] != there.get(part):
                    return f"another {name} ({part} {there.get(part)}, not {here[part]})"
        if here != there:
            digests = (str(value)[:16] for value in (there, here))
            return "another {} ({}, not {})".format(name.replace("_", " "), *digests)
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
    """The checkpoint of `folder`; a `TrainerError` if it is damaged, of a newer schema, or of another origin."""
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
    if different := _difference(header["origin"], origin):
        raise TrainerError(f"{path} is of {different}: give the options that it was made with, or another --checkpoint")
    arrays = {}
    for entry in header["arrays"]:
        begin, dtype, shape = len(line) + 1 + entry["begin"], np.dtype(entry["dtype"]), tuple(entry["shape"])
        arrays[entry["name"]] = content[begin : begin + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
    return Checkpoint(header["step"], header["device"], arrays)


def write(folder: Path, origin: Origin, checkpoint: Checkpoint) -> None:
    """Put the checkpoint in the place of the one before, which stays until this one is on the disk.

    The GIL is held for microseconds of it: threads may do this beside the training.
    """
    entries, size = [], 0
    for name, array in checkpoint.arrays.items():
        dtype = array.dtype.newbyteorder("<").str
        entries.append({"name": name, "dtype": dtype, "shape": array.shape, "begin": size})
        size += array.nbytes + -array.nbytes % _ALIGNED
    about = {"schema": SCHEMA, "step": checkpoint.step, "device": checkpoint.device, "origin": dict(origin)}
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


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """The folder of a run's checkpoints, locked against other runs until it is closed."""

    folder: Path
    origin: Origin
    begun: Checkpoint | None
    """The checkpoint to go on from; None: begin anew."""
    lock: IO[str]

    def close(self) -> None:
        self.lock.close()


def open_checkpoint_folder(folder: Path, origin: Origin, *, resume: bool) -> CheckpointFolder:
    """Make the folder if need be, lock it, and read the checkpoint to go on from.

    :raises TrainerError: it cannot be written, another run writes there, or what is in it does not fit `resume`.
    """
    try:
        if not resume:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise TrainerError(f"--resume: there is no folder {folder}; leave --resume out to begin")
        lock = open(folder / _LOCK, "w", encoding="utf-8")  # noqa: SIM115  open as long as the run
    except OSError as error:
        raise TrainerError(f"--checkpoint {folder}: {error.strerror or error}") from None
    try:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with this process, however it ends
        except (BlockingIOError, PermissionError):
            raise TrainerError(f"--checkpoint {folder}: another run writes there: name another folder") from None
        if not resume and (folder / FILE).exists():
            raise TrainerError(f"--checkpoint {folder} holds a checkpoint: go on with --resume, or name another folder")
        return CheckpointFolder(folder, origin, read(folder, origin) if resume else None, lock)
    except TrainerError:
        lock.close()
        raise


class Snapshots:
    """Takes a snapshot every so many steps, one at a time: where the one before is not on the disk yet, it waits.

    :param history: rows (steps, columns) of the first so many steps, when they are all there.
    :param every: fewest steps between two.
    :param say: receives a line when a checkpoint cannot be written; the training continues.
    """

    def __init__(
        self,
        device: Device,
        folder: CheckpointFolder,
        buffers: Mapping[str, Buffer],
        history: Callable[[int], np.ndarray],
        *,
        every: int,
        say: Callable[[str], None],
    ) -> None:
        self._device = device
        self._folder = folder
        self._buffers = buffers
        self._history = history
        self.every = every
        self._say = say
        self._fetched = {name: device.pinned(buffer.shape) for name, buffer in buffers.items()}
        self._taken = self._saved = folder.begun.step if folder.begun else 0
        self._fetching: tuple[int, Any] | None = None  # step, and ticket
        self._writing: tuple[int, Future[None]] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def submitted(self, step: int) -> None:
        """Step `step` is in the queue: take a snapshot behind it if one is due."""
        if step - self._taken < self.every or self._fetching is not None:
            return
        if self._writing is not None:
            if not self._writing[1].done():
                return  # its pinned memory is in use
            if fault := self._end():
                self._say(fault)
        self._take(step)

    def collected(self, step: int) -> None:
        """Step `step` is done, and with it the copies that were put into the queue before it: write them."""
        if self._fetching is not None and step > self._fetching[0]:
            self._write()

    def finish(self, step: int) -> None:
        """No chunk is in flight, `step` was the last: save it, and return when it is on the disk."""
        if self._fetching is not None:
            self._write()
        fault = self._end()
        if step > self._saved:
            if fault:
                self._say(fault)  # what follows makes up for it
            self._take(step)
            self._write()
            fault = self._end()
        if fault:
            raise TrainerError(fault)

    def rescued(self) -> str:
        """Wait for what is being written; in words which checkpoint there is, of a run that ends early.

        The writer is asked, not `_writing`: an interrupt may have come before that was noted.
        """
        self._writer.shutdown(wait=True)
        if fault := self._end():
            return fault
        return f"checkpoint of step {self._saved} in {self._folder.folder}" if self._saved else ""

    def close(self) -> None:
        """Wait for what is being written; a snapshot that is not yet is left out."""
        self._writer.shutdown(wait=True)

    def _take(self, step: int) -> None:
        ticket: Any = None
        with marks.region("checkpoint"):
            for name, buffer in self._buffers.items():
                ticket = self._device.fetch_into(self._fetched[name], buffer)
        self._fetching = step, ticket  # of the last copy, and so of all
        self._taken = step

    def _write(self) -> None:
        assert self._fetching is not None
        step, ticket = self._fetching
        with marks.region("checkpoint"):
            self._device.wait(ticket)  # a step later: there is nothing to wait for
            checkpoint = Checkpoint(step, self._device.kind, {**self._fetched, HISTORY: self._history(step)})
            self._writing = step, self._writer.submit(self._save, checkpoint)
        self._fetching = None

    def _save(self, checkpoint: Checkpoint) -> None:
        write(self._folder.folder, self._folder.origin, checkpoint)
        self._saved = checkpoint.step

    def _end(self) -> str:
        """Wait for the checkpoint that is being written; its error in one line, or an empty text."""
        if self._writing is None:
            return ""
        step, future = self._writing
        self._writing = None
        try:
            future.result()
        except OSError as error:
            remaining = f"that of step {self._saved} stays" if self._saved else "there is none before it"
            where = self._folder.folder / FILE
            return f"{where}: the checkpoint of step {step} was not written: {error.strerror or error}; {remaining}"
        return ""
