"""Options, output files, signals and exit codes of both trainers' programs."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, Never

from reference_trainer.errors import USAGE, TrainerError, missing_packages


class Parser(argparse.ArgumentParser):
    """Reports errors in one line: the usage of so many options would push them out of sight.

    Options may be written with underscores, as the settings are, although --help lists them with hyphens only.
    """

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        words = sys.argv[1:] if args is None else list(args)
        for index, word in enumerate(words):
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                words[index] = name.replace("_", "-") + equals + value
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> Never:
        self.exit(USAGE, f"error: {message}; --help lists all options\n")


def flag(name: str) -> str:
    """The option of a setting."""
    return f"--{name.replace('_', '-')}"


def path_of(arguments: argparse.Namespace, name: str) -> Path | None:
    """An empty text is no path: a shell variable that was not set, and `Path` would take it for the folder here."""
    text = getattr(arguments, name)
    if text == "":
        raise TrainerError(f"{flag(name)} is empty: name a path, or leave {flag(name)} out")
    return None if text is None else Path(text)


def asked_fixes(arguments: argparse.Namespace) -> dict[str, Any]:
    """`variant` or `fixes` as settings have them, where one of them is given."""
    if arguments.fixes is None:
        return {} if arguments.variant is None else {"variant": arguments.variant}
    if arguments.variant is not None:
        raise TrainerError("--variant means nothing beside --fixes: leave one out")
    names = (name.strip() for name in arguments.fixes.split(","))
    return {"fixes": tuple(dict.fromkeys(name for name in names if name))}


def check_output(option: str, path: Path) -> None:
    """See whether the file can be written, by a temporary one beside it; if not, that is a `TrainerError`."""
    if not path.parent.is_dir():
        raise TrainerError(f"{option} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise TrainerError(f"{option} {path} is a folder: name a file")
    if path.is_file() or not path.exists():
        with _reported(option, path):
            _temporary(path).touch()
            _temporary(path).unlink()


def write_output(option: str, path: Path, text: str) -> None:
    """Replace the file; into what is none (a pipe, /dev/stdout) write directly."""
    with _reported(option, path):
        if path.is_file() or not path.exists():
            replace_file(path, text.encode())
        else:
            path.write_text(text, encoding="utf-8")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file under another name, and give it its own when it is complete."""
    try:
        _temporary(path).write_bytes(content)
        _temporary(path).replace(path)
    finally:  # Ctrl-C too
        _temporary(path).unlink(missing_ok=True)


@contextmanager
def _reported(option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrainerError(f"{option} {path}: {error.strerror}") from None


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""A shell's exit code for a program that SIGPIPE ended."""
TERMINATED: Final = 143
"""A shell's exit code for a program that SIGTERM ended."""

_asked: list[int] = []
"""Received signals that end the program."""


def obey() -> None:
    """Raise KeyboardInterrupt if a signal requested it and Python ignored it, as it does in a `__del__`."""
    if _asked:
        raise KeyboardInterrupt


def guarded(work: Callable[[], int], interrupted: str = "interrupted") -> int:
    """Do the program's work and give its exit code; `interrupted` is for a KeyboardInterrupt without a message."""
    if missing := missing_packages():
        print(f"error: {missing}", file=sys.stderr)
        return USAGE
    with _signals():
        try:
            code = work()
            obey()
            sys.stdout.flush()  # so that a full disk is handled below and not at the interpreter's exit
            return code
        except TrainerError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt as error:
            print(str(error) or interrupted, file=sys.stderr)
            return TERMINATED if signal.SIGTERM in _asked else INTERRUPTED
        except OSError as error:  # other files raise a TrainerError: this is the output
            with suppress(OSError, ValueError):  # what is buffered would fail again when the interpreter exits
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):  # the reader went away
                return BROKEN_PIPE
            print(f"error: cannot write the output: {error.strerror or error}", file=sys.stderr)
            return USAGE


@contextmanager
def _signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt and are remembered; handlers that others installed stay."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread():
        usual = {}  # only the main thread may, and only it is interrupted
    _asked.clear()
    ours = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    swallowed = sys.unraisablehook

    def tell(what: sys.UnraisableHookArgs) -> None:
        """A traceback for what Python ignores, but for our own interrupt: `obey` follows it, and that is one line."""
        if not (_asked and what.exc_type is KeyboardInterrupt):
            swallowed(what)

    try:
        for number in ours:
            signal.signal(number, _ask)
        if ours:
            sys.unraisablehook = tell
        yield
    finally:
        if sys.unraisablehook is tell:
            sys.unraisablehook = swallowed
        for number in ours:
            signal.signal(number, usual[number])
        _asked.clear()


def _ask(number: int, _: FrameType | None) -> Never:
    _asked.append(number)
    raise KeyboardInterrupt
