"""The results file: JSON lines, appended while the sweep runs, from which a later sweep continues.

The first line has the settings that make results comparable; each further line is the outcome or failure of a job, or
the statistics of a sweep that ended. A line that a killed writer left unfinished is removed when the file is opened
again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.program import flag
from reference_trainer.ssm.problem import METHODS, Fit, Job, Outcome
from reference_trainer.ssm.settings import Settings

FORMAT: Final = "results of a teacher-student sweep, 1"
_KEY: Final = "format"
_BEGINNING: Final = json.dumps({_KEY: FORMAT})[:-1].encode()
"""The first bytes of every results file."""
_SYNC_S: Final = 1.0
"""Seconds of results that a power cut can lose (kill -9 loses none). Syncing each line would outlast a small job."""
_COMPARED: Final = (
    "sequence_length",
    "measurements",
    "optimizer",
    "lr",
    "init_scale",
    "epochs",
    "gd_loss",
    "gnc_loss",
    "max_guesses",
)
"""Settings on which the outcome of a job depends. Variants, engines and devices are not among them because they give
the same outcomes, nor are seeds, ranks and dimensions, by which a sweep may grow."""


class ResultFile:
    """A results file that is open and locked against other writers, or no file at all."""

    def __init__(self, path: Path | None, settings: Settings, *, tf32: bool = False) -> None:
        """:raises TrainerError: it cannot be written, another sweep writes it, its settings differ, it is damaged."""
        self.path = path
        self.done: dict[Job, Outcome] = {}
        """Outcomes by job."""
        self.note = ""
        """What was repaired on opening."""
        self._file = -1
        self._size = 0
        self._synced = time.monotonic()
        if path is None:
            return
        self._file = _opened(path)
        try:
            self._begin({name: getattr(settings, name) for name in _COMPARED} | {"tf32": tf32})
        except BaseException:
            self.close()
            raise

    def add(self, outcomes: Iterable[Outcome], variant: str) -> None:
        """Append outcomes of jobs.

        :param variant: name of the variant, or names of the fixes, that they were done with.
        :raises TrainerError: there is no space; the file is unchanged.
        """
        outcomes = list(outcomes)
        self._append([{**_row(outcome), "variant": variant} for outcome in outcomes])
        self.done.update((outcome.job, outcome) for outcome in outcomes)

    def fail(self, jobs: Iterable[Job], reason: str, trace: str = "") -> None:
        """Append that jobs failed; the next sweep does them again.

        :param trace: the traceback, if there is one.
        """
        why = {"failure": reason} | ({"trace": trace} if trace else {})
        self._append([{**job._asdict(), **why} for job in jobs])

    def conclude(self, statistics: Mapping[str, Any]) -> None:
        """Append the statistics of a sweep."""
        self._append([{"statistics": statistics}])
        self._sync()

    def close(self) -> None:
        """Close the file and release its lock."""
        if self._file >= 0:
            with suppress(OSError):  # what was reported as written is in the page cache, though a power cut may lose it
                self._sync()
            os.close(self._file)
            self._file = -1

    # ------------------------------------------------------------ reading

    def _begin(self, compared: Mapping[str, Any]) -> None:
        content = _whole(self._file)
        lines = content.split(b"\n")
        unfinished = lines.pop()
        if not lines and _is_torn_header(unfinished):
            self._truncate(0)
            self._append([{_KEY: FORMAT, "settings": dict(compared)}])
            self._sync()
            return
        first = lines[0] if lines else unfinished
        self._compare(first, compared)
        self._size = len(content)
        if unfinished:
            self._mend(unfinished, len(content) - len(unfinished))
            if not self.note and lines:
                lines.append(unfinished)
        for number, line in enumerate(lines[1:], start=2):
            self._read(line, number)

    def _compare(self, line: bytes, compared: Mapping[str, Any]) -> None:
        header = _parsed(line)
        if header is None or header.get(_KEY) != FORMAT or not isinstance(header.get("settings"), dict):
            raise TrainerError(
                f"--results {self.path}: this is not a results file, or it has another version; name another"
            )
        before = header["settings"]
        for name in dict.fromkeys((*compared, *before)):
            if before.get(name) != compared.get(name):
                raise TrainerError(
                    f"--results {self.path}: it was made with {flag(name)} {before.get(name)} "
                    f"and this sweep has {compared.get(name)}: name another file"
                )

    def _mend(self, unfinished: bytes, at: int) -> None:
        """Repair a last line without its end: a writer was killed, or its machine lost power."""
        if _parsed(unfinished) is not None:
            self._write(b"\n")
            return
        self._truncate(at)
        self.note = f"{self.path}: an unfinished last line was removed; its job is done again"

    def _read(self, line: bytes, number: int) -> None:
        row = _parsed(line)
        try:
            if row is None:
                raise ValueError
            if "statistics" in row:
                return
            job = _job(row)
            if "failure" in row:
                self.done.pop(job, None)
            else:
                self.done[job] = _outcome(job, row)
        except (ValueError, TypeError, KeyError):
            raise TrainerError(
                f"--results {self.path}: line {number} is damaged: remove it (its job is done again), "
                "or name another file"
            ) from None

    # ------------------------------------------------------------ writing

    def _append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        if self._file < 0:
            return
        self._write("".join(json.dumps(row) + "\n" for row in rows).encode())
        if time.monotonic() - self._synced >= _SYNC_S:
            self._sync()

    def _write(self, data: bytes) -> None:
        try:
            with self._reported():
                written = 0
                while written < len(data):  # a nearly full disk writes a part, and then fails
                    written += os.write(self._file, data[written:])
        finally:
            now = os.fstat(self._file).st_size
            if now not in (self._size, self._size + len(data)):  # Ctrl-C too may interrupt it in the middle
                os.ftruncate(self._file, self._size)
                now = self._size
            self._size = now

    def _sync(self) -> None:
        self._synced = time.monotonic()
        if self._file >= 0:
            with self._reported():
                try:
                    os.fsync(self._file)
                except OSError as error:
                    if error.errno != errno.EINVAL:  # a file system that cannot sync
                        raise

    def _truncate(self, size: int) -> None:
        with self._reported():
            os.ftruncate(self._file, size)
        self._size = size

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn an error of the file system into one for the user."""
        try:
            yield
        except OSError as error:
            raise TrainerError(
                f"--results {self.path}: {error.strerror}; its content is complete; free some space and start again"
            ) from None


def is_result_file(path: Path) -> bool:
    """Whether the path is a results file, which nothing else may write to."""
    if not path.is_file():  # opening a pipe would wait for its writer
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False


def _opened(path: Path) -> int:
    if not path.parent.is_dir():
        raise TrainerError(f"--results {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise TrainerError(f"--results {path} is a folder: name a file")
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise TrainerError(f"--results {path}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise TrainerError(
                f"--results {path}: it is not a regular file, and outcomes must be read back: name another"
            )
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise TrainerError(
            f"--results {path}: another sweep writes into it: wait until it is done, or name another file"
        ) from None
    except OSError:
        pass  # a file system without locks
    except BaseException:
        os.close(file)
        raise
    return file


def _whole(file: int) -> bytes:
    with open(os.dup(file), "rb") as content:
        content.seek(0)
        return content.read()


def _is_torn_header(line: bytes) -> bool:
    """Whether a file with only this line is empty or was left while its first line was written."""
    return _BEGINNING.startswith(line) or (line.startswith(_BEGINNING) and _parsed(line) is None)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _row(outcome: Outcome) -> dict[str, Any]:
    values = asdict(outcome)
    row = {**values.pop("job")._asdict(), **values.pop("fit"), **values}
    # JSON cannot represent nan and inf of a diverged training
    return {
        name: str(value) if isinstance(value, float) and not isfinite(value) else value for name, value in row.items()
    }


def _job(row: Mapping[str, Any]) -> Job:
    if row["method"] not in METHODS:
        raise ValueError
    return Job(row["method"], *(_whole_number(row[name]) for name in ("rank", "dim", "seed")))


def _outcome(job: Job, row: Mapping[str, Any]) -> Outcome:
    if not isinstance(row["fitted"], bool):
        raise TypeError
    train, generalization = float(row["train_loss"]), float(row["generalization_loss"])
    fit = Fit(train, generalization, row["fitted"], _whole_number(row["epochs"]), _whole_number(row["guesses"]))
    memory, points = _whole_number(row["memory_bytes"]), _whole_number(row["points"])
    return Outcome(job, fit, float(row["seconds"]), memory, str(row["device"]), points)


def _whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value
