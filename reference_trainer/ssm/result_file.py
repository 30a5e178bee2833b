"""The results file: JSON lines, appended while the sweep runs, from which a later sweep continues.

The first line has the settings that make results comparable; each further line is the outcome or failure of a job, or
the statistics of a sweep that ended. A line that a killed writer left unfinished is removed when the file is opened
again.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.program import check_output, flag
from reference_trainer.ssm.problem import METHODS, Fit, Job, Outcome
from reference_trainer.ssm.settings import Settings

FORMAT: Final = "results of a teacher-student sweep, 1"
_BEGINNING: Final = json.dumps({"format": FORMAT})[:-1].encode()
"""The first bytes of every results file."""
_SYNC_S: Final = 1.0
"""Seconds of results that a power cut can lose (kill -9 loses none). Syncing each line would outlast a small job."""
_DATA: Final = ("sequence_length", "measurements")
_BUDGET: Final = ("optimizer", "lr", "init_scale", "epochs", "gd_loss", "gnc_loss", "max_guesses")
_COMPARED: Final = (*_DATA, *_BUDGET)
"""Settings on which the outcome of a job depends. Variants, engines and devices are not among them because they give
the same outcomes, nor are seeds, ranks and dimensions, by which a sweep may grow."""
_COUNTS: Final = ("rank", "dim", "seed", "epochs", "guesses", "memory_bytes", "points")
"""Whole numbers of an outcome."""


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
        if path is not None:
            self._file = _opened(path)
            try:
                self._begin({name: getattr(settings, name) for name in _COMPARED} | {"tf32": tf32})
            except BaseException:
                self.close()
                raise

    def add(self, outcomes: Iterable[Outcome], variant: str) -> None:
        """Append outcomes of jobs, done with a variant or the fixes named. Without space the file is unchanged."""
        rows = []
        for outcome in (outcomes := list(outcomes)):
            values = asdict(outcome)
            row = {**values.pop("job")._asdict(), **values.pop("fit"), **values, "variant": variant}
            # JSON cannot represent nan and inf of a diverged training
            odd = {name: str(item) for name, item in row.items() if isinstance(item, float) and not isfinite(item)}
            rows.append(row | odd)
        self._append(rows)
        self.done.update((outcome.job, outcome) for outcome in outcomes)

    def fail(self, jobs: Iterable[Job], reason: str, trace: str = "") -> None:
        """Append that jobs failed, with the traceback if there is one; the next sweep does them again."""
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

    def _begin(self, compared: Mapping[str, Any]) -> None:
        with open(os.dup(self._file), "rb") as file:
            content = file.read()
        *lines, unfinished = content.split(b"\n")
        if not lines and (_BEGINNING.startswith(unfinished) or unfinished.startswith(_BEGINNING)):
            self._truncate(0)  # it is new, or its writer ended in the first line
            self._append([{"format": FORMAT, "settings": dict(compared)}])
            self._sync()
            return
        self._compare(lines[0] if lines else unfinished, compared)
        self._size = len(content)
        if unfinished:  # a writer was killed, or its machine lost power
            self._truncate(len(content) - len(unfinished))
            self.note = f"{self.path}: an unfinished last line was removed; its job is done again"
        for number, line in enumerate(lines[1:], start=2):
            self._read(line, number)

    def _compare(self, line: bytes, compared: Mapping[str, Any]) -> None:
        header = _parsed(line)
        if header.get("format") != FORMAT or not isinstance(header.get("settings"), dict):
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

    def _read(self, line: bytes, number: int) -> None:
        row = _parsed(line)
        if "statistics" in row:
            return
        try:
            job = Job(*(row[name] for name in Job._fields))
            failed = "failure" in row
            if job.method not in METHODS or any(
                type(row[name]) is not int for name in _COUNTS[: 3 if failed else None]
            ):
                raise ValueError
            if failed:
                self.done.pop(job, None)
                return
            losses = float(row["train_loss"]), float(row["generalization_loss"])
            if not isinstance(row["fitted"], bool):
                raise ValueError
            fit = Fit(*losses, row["fitted"], row["epochs"], row["guesses"])
            use = float(row["seconds"]), row["memory_bytes"], str(row["device"]), row["points"]
            self.done[job] = Outcome(job, fit, *use)
        except (ValueError, TypeError, KeyError):
            raise TrainerError(
                f"--results {self.path}: line {number} is damaged: remove it (its job is done again), "
                "or name another file"
            ) from None

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
                os.fsync(self._file)

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
    check_output("--results", path)
    if path.exists() and not path.is_file():
        raise TrainerError(f"--results {path}: it is not a regular file, and outcomes must be read back: name another")
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise TrainerError(f"--results {path}: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise TrainerError(
            f"--results {path}: another sweep writes into it: wait until it is done, or name another file"
        ) from None
    except OSError:
        pass  # a file system without locks
    return file


def _parsed(line: bytes) -> dict[str, Any]:
    """The object of a line; empty: it holds none."""
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}
