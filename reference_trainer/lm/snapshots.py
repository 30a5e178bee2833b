"""Checkpoints during training: the device copies the buffers in its queue, and a background thread writes them.

What the steps pay for one is the device's copy to pinned memory, and what the writer takes of the machine.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from profiler import marks
from reference_trainer.devices.protocol import Buffer, Device
from reference_trainer.errors import TrainerError
from reference_trainer.lm.checkpoint import FILE, Checkpoint, Origin, read, write

HISTORY: Final = "history"
"""Name of the rows of metrics among a checkpoint's arrays."""
_LOCK: Final = ".lock"


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
    """Make the folder if need be, and look at what is in it.

    :raises TrainerError: nothing can be written there, another run writes there, there is a checkpoint and it is not to
        be gone on from, or it is and there is none that fits.
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

    :param buffers: what is saved, by name.
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
        """No chunk is in flight, `step` was the last: save it, and return when it is on the disk.

        :raises TrainerError: it cannot be written.
        """
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
