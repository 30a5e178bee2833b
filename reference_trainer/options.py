"""What the trainers' command lines share: their parser, an option's name and path, the fixes that are asked for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Never

from reference_trainer.errors import USAGE, TrainerError


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong: the usage of so many options would push it out of sight."""

    def error(self, message: str) -> Never:
        """End with the exit code of bad input."""
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
    """`variant` or `fixes` as settings have them, where they are given.

    :raises TrainerError: both are.
    """
    if arguments.fixes is None:
        return {} if arguments.variant is None else {"variant": arguments.variant}
    if arguments.variant is not None:
        raise TrainerError("--variant means nothing beside --fixes: leave one out")
    names = (name.strip() for name in arguments.fixes.split(","))
    return {"fixes": tuple(dict.fromkeys(name for name in names if name))}
