"""The bundled trainer's measurement of tokenization: started as a program, its figures read as JSON."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from profiler.core.errors import Exit, ProfilerError

SCHEMA: Final = "tokenization/1"
_MODULE: Final = "reference_trainer.lm.tokenization"
_WAKE_S: Final = 0.1
_GRACE_S: Final = 5.0  # from Ctrl-C until it is killed
_INTERRUPTED: Final = "interrupted; nothing was measured"
_PREFIX: Final = "error: "  # of a line in which it says what is wrong


def measure_tokenization(options: Sequence[str]) -> dict[str, Any]:
    """Run the measurement with these options; its figures, as it printed them.

    :raises ProfilerError: the trainer is not installed, or it failed: its own words, with its exit code.
    """
    if importlib.util.find_spec("reference_trainer") is None:
        raise ProfilerError("the bundled trainer is not installed: its tokenization cannot be measured")
    with _noting_interrupts() as interrupts:
        process = subprocess.Popen(
            (sys.executable, "-m", _MODULE, *options, "--json"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        out, err = _wait(process, interrupts)
    if interrupts:
        raise ProfilerError(_INTERRUPTED, Exit.INTERRUPTED)
    if process.returncode:
        raise _failure(process.returncode, err)
    return _document(out)


@contextmanager
def _noting_interrupts() -> Iterator[list[int]]:
    """Ctrl-C as a list that is no longer empty: as an exception it could come while the program is being started,
    and nobody would know of that one.
    """
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and before is not signal.SIG_IGN
    if ours:
        signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def _wait(process: subprocess.Popen[str], interrupts: Sequence[int]) -> tuple[str, str]:
    """What it prints until it ends; Ctrl-C is passed on, and if it does not heed that, it is killed."""
    until = None
    while True:
        try:
            return process.communicate(timeout=_WAKE_S)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if interrupts and until is None:
                until = now + _GRACE_S
                process.send_signal(signal.SIGINT)
            elif until is not None and (now > until or len(interrupts) > 1):
                process.kill()


def _failure(code: int, err: str) -> ProfilerError:
    said = [line.strip() for line in err.splitlines() if line.strip()] or ["it printed nothing"]
    last = "".join(char for char in said[-1] if char.isprintable())  # it must not command the terminal
    if code == Exit.USAGE and last.startswith(_PREFIX):
        return ProfilerError(last.removeprefix(_PREFIX))
    if code == Exit.INTERRUPTED:
        return ProfilerError(_INTERRUPTED, Exit.INTERRUPTED)
    how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
    return ProfilerError(f"the measurement of tokenization {how}: {last}", Exit.TARGET_FAILED)


def _document(out: str) -> dict[str, Any]:
    try:
        document = json.loads(out)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ProfilerError(f"the measurement of tokenization did not print {SCHEMA}", Exit.TARGET_FAILED)
    return document
