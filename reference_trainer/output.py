"""Files that a run writes at its end: whole or not at all, and refused before the training where that can be."""

from __future__ import annotations

import os
from pathlib import Path

from reference_trainer.errors import TrainerError


def check_output(option: str, path: Path) -> None:
    """See whether the file can be written, by a temporary one beside it.

    :raises TrainerError: it cannot.
    """
    if not path.parent.is_dir():
        raise TrainerError(f"{option} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise TrainerError(f"{option} {path} is a folder: name a file")
    if _in_place(path):
        return
    try:
        _temporary(path).touch()
        _temporary(path).unlink()
    except OSError as error:
        raise TrainerError(f"{option} {path}: {error.strerror}") from None


def write_output(option: str, path: Path, text: str) -> None:
    """Replace the file; into what is none (a pipe, /dev/stdout) write directly.

    :raises TrainerError: it cannot be written.
    """
    try:
        if _in_place(path):
            path.write_text(text, encoding="utf-8")
            return
        try:
            _temporary(path).write_text(text, encoding="utf-8")
            _temporary(path).replace(path)
        finally:  # Ctrl-C too
            _temporary(path).unlink(missing_ok=True)
    except OSError as error:
        raise TrainerError(f"{option} {path}: {error.strerror}") from None


def _in_place(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")
