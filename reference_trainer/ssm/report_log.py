"""Reports of fits in progress: as found, whole tensors in each; with `quiet`, fewer reports of the first values.

A report is a line: the job, its number of updates or guesses, the training loss, and tensors by name. As found every
tensor is copied to the host, which waits for an asynchronous device, and becomes a list of Python numbers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.ssm.problem import Job, Students

if TYPE_CHECKING:
    import torch

FIRST: Final = 5
"""Number of values of a tensor in a quiet report."""


class ReportLog:
    """Appends the reports of a group of jobs to a file, one line at a time, so that workers may share it.

    :param path: None: reports are written to /dev/null.
    :param every: updates or guesses between two reports; in a quiet log the distance doubles with each report.
    """

    def __init__(self, path: Path | None, *, every: int, quiet: bool) -> None:
        self._path, self._every, self._quiet = path, every, quiet
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._file = os.open(os.devnull if path is None else path, flags, 0o666)
        except OSError as error:
            raise TrainerError(f"--log {path}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def due(self, number: int) -> bool:
        """Whether a report is due after this number of updates or guesses."""
        times, remainder = divmod(number, self._every)
        return times > 0 and remainder == 0 and not (self._quiet and times & (times - 1))

    def due_in(self, first: int, last: int) -> list[int]:
        """All numbers from `first` to `last` after which a report is due."""
        begin = -(-first // self._every) * self._every
        return [number for number in range(begin, last + 1, self._every) if self.due(number)]

    def report(self, jobs: Sequence[Job], numbers: Sequence[int], tensors: Mapping[str, torch.Tensor]) -> None:
        """Write a line for each job: its number of updates or guesses, and its row of each tensor."""
        with marks.region("log"):
            if self._quiet:
                tensors = {name: tensor[:, :FIRST] if tensor.dim() > 1 else tensor for name, tensor in tensors.items()}
            lists = {name: tensor.detach().cpu().tolist() for name, tensor in tensors.items()}
            for row, (job, number) in enumerate(zip(jobs, numbers, strict=True)):
                values = " ".join(f"{name} {column[row]}" for name, column in lists.items())
                self._write(f"{job.name} {number}: {values}\n".encode())
            marks.count("reports", len(jobs))
            marks.count("logged_values", sum(tensor.numel() for tensor in tensors.values()))

    def _write(self, line: bytes) -> None:
        try:
            written = os.write(self._file, line)  # one call per line, because other workers append to the same file
        except OSError as error:
            raise TrainerError(f"--log {self._path}: {error.strerror}") from None
        if written < len(line):  # a nearly full disk writes a part of it
            raise TrainerError(f"--log {self._path}: {os.strerror(errno.ENOSPC)}, its last line is cut off")
        marks.count("logged_bytes", len(line))


def reported(losses: torch.Tensor, outputs: torch.Tensor, students: Students) -> dict[str, torch.Tensor]:
    """The tensors of a report by name: the losses are (S,), outputs (S, N)."""
    return {"loss": losses, "outputs": outputs, **students._asdict()}
