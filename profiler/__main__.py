"""Finds the commands, parses the arguments, and turns each error into a line and an exit code."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Final, NoReturn

from profiler import __doc__ as purpose
from profiler import __version__
from profiler.core.errors import Exit, ProfilerError
from profiler.core.machine import install_hint, missing_packages
from profiler.core.plugins import call_plugin, discover, entry_points
from profiler.core.terminal import called_as

DEBUG = "PROFILER_DEBUG"
"""Environment variable that makes an internal error show its traceback."""
_BROKEN_PIPE = 141  # as a shell reports a program that SIGPIPE ended


def make_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser, with a subparser for each command.

    :param words: the arguments. To save time, only the commands among them get their options. None: all commands.
    """
    parser = _Parser(prog=called_as(), description=purpose)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    builtin = {command.name: command for command in discover("profiler.commands")}
    for name, command in sorted({**entry_points("commands"), **builtin}.items()):
        with_options = words is None or name in words
        if name in builtin:
            _add_command(commands, command, with_options)
        else:
            call_plugin(f"{name} (command)", _add_command, commands, command, with_options)
    return parser


def _add_command(commands: argparse._SubParsersAction[_Parser], command: Any, with_options: bool) -> None:
    subparser = commands.add_parser(
        command.name, help=command.help, description=command.help, formatter_class=_HelpFormatter
    )
    subparser.set_defaults(run=command.run, parser=subparser)
    if with_options:
        command.prepare_parser(subparser)
        given = getattr(command, "examples", ())  # a command of another package may have none
        examples = "\n".join((_EXAMPLES, *(f"  {called_as()} {example}" for example in given)))
        subparser.epilog = "\n\n".join(filter(None, (subparser.epilog, examples)))


_EXAMPLES: Final = "examples:"
_SIMILAR: Final = 0.7
"""Ratio of equal letters (difflib) of a wrong word and the one that was meant: --basline has 0.95, --bogus 0.62."""


class _Parser(argparse.ArgumentParser):
    """Raises on a closed pipe, which argparse ignores, and suggests a similar word for a wrong one."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and (stream := file or sys.stderr) is not None:
            stream.write(message)

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"unrecognized arguments: (\S+)|COMMAND: invalid choice: '(\S+)'", message)
        known = [*self._option_string_actions, *(name for each in self._actions for name in each.choices or ())]
        near = difflib.get_close_matches(next(filter(None, wrong.groups())), known, 1, _SIMILAR) if wrong else []
        self.refuse(f"{message.partition(' (choose from')[0]}: did you mean {near[0]}?" if near else message)

    def refuse(self, message: str) -> NoReturn:
        """End the program with a message; a command may have another way."""
        super().error(message)


class _HelpFormatter(argparse.HelpFormatter):
    """Fills each paragraph separately, and keeps the lines of examples, so that they can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            part if part.startswith(_EXAMPLES) else super(_HelpFormatter, self)._fill_text(part, width, indent)
            for part in text.split("\n\n")
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. On a usage error, argparse exits with 2."""
    return guarded(lambda: copy_context().run(_dispatch, argv))  # options that set a limit end with the command


def _dispatch(argv: Sequence[str] | None) -> int:
    parser = make_parser(sys.argv[1:] if argv is None else argv)
    args, unknown = parser.parse_known_args(argv)
    if "run" not in args:
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        parser.print_help(sys.stderr)
        parser.exit(int(Exit.USAGE), "error: choose a command\n")
    if unknown:  # with the usage of the command
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    code: int = args.run(args)
    return code


def _flushed(work: Callable[[], int]) -> int:
    """Call `work` and flush its output, so that a closed pipe raises here and not when the interpreter exits."""
    try:
        return work()
    finally:
        if sys.stdout is not None:  # None: it was closed from the start
            sys.stdout.flush()


def guarded(work: Callable[[], int]) -> int:
    """Call `work` and return its exit code. Turn an error into one line on stderr and an exit code."""
    try:
        return _flushed(work)
    except ProfilerError as error:
        _report(f"error: {error}")
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except ModuleNotFoundError as error:
        absent = missing_packages()
        if (error.name or "").partition(".")[0] not in absent:
            return _internal(error)
        _report(f"error: {install_hint(absent)}")
        return int(Exit.USAGE)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # rich ends a program whose reader went away with 1
            return _BROKEN_PIPE
        raise
    except BrokenPipeError:
        # the reader went away; what is still buffered must not raise again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except OSError as error:  # most often of a folder that another user made
        if error.filename is None:
            return _internal(error)
        _report(f"error: cannot use {os.fsdecode(error.filename)}: {error.strerror}")
        return int(Exit.USAGE)
    except Exception as error:  # noqa: BLE001 - the edge of the process, and it reports
        return _internal(error)


def _internal(error: Exception) -> int:
    if os.environ.get(DEBUG):
        raise error
    message = " ".join(str(error).split())
    _report(f"internal error: {type(error).__name__}: {message} (set {DEBUG}=1 for the traceback)")
    return int(Exit.USAGE)


def _report(line: str) -> None:
    """Print a line on stderr. A closed terminal does not change the exit code: Python's 1 and 120 would mislead."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:  # what is still buffered must not raise again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


if __name__ == "__main__":
    sys.exit(main())
