"""Holds the commands, one module each: a parser and a short `run`.

They only connect other packages. `profiler.core.plugins` finds them.
"""

from __future__ import annotations

import argparse
from typing import Protocol


class Command(Protocol):
    """Describes a subcommand. Its module defines `PLUGIN: Command` and imports nothing heavy before `run` is called."""

    name: str
    help: str
    examples: tuple[str, ...]
    """Two example calls for the end of the help, without the name of the program."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command and return its exit code.

        :raises ProfilerError: an error that the user can correct.
        """
