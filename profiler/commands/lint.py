"""`lint`: counts a few steps of a script, and names the lines that break a rule about counts."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Final

from profiler.commands._common import seconds
from profiler.core.errors import Exit, ProfilerError
from profiler.core.machine import DEFAULT_CARD
from profiler.exact.model import CARDS

_EPILOG: Final = (
    "Exit code: 0 no finding, 1 findings, 2 lint was impossible (the script failed, took too few steps or used no CUDA "
    "device). A line with the comment `profiler: ignore` is not reported."
)


class LintCommand:
    """Run a few steps of a script, and print the lines that wait, copy or leak."""

    name = "lint"
    help = "run a few steps on a virtual CUDA device, and name lines that wait, copy or leak"
    examples = ("lint train.py --device cuda", "lint --cpu -- -m mine.train --epochs 1")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = _EPILOG
        add = parser.add_argument
        add("--cpu", action="store_true", help="count on the CPU the reads that would wait")
        add("--devices", type=int, default=1, metavar="N", help="number of virtual CUDA devices (default: %(default)s)")
        add(
            "--card",
            choices=CARDS,
            default=DEFAULT_CARD,
            help="GPU model of the virtual devices (default: %(default)s)",
        )
        add("--steps", type=int, default=8, metavar="N", help="number of counted steps (default: %(default)s)")
        add("--new-since", metavar="REV", help="report only lines that changed since this git revision")
        add("--baseline", type=Path, metavar="FILE", help="report only findings that are not in this file")
        add("--update", action="store_true", help="write the findings to the baseline instead")
        add("--ignore", action="append", default=[], metavar="RULE", help="leave this rule out")
        add("--format", choices=("text", "json"), default="text", help="format of the output (default: %(default)s)")
        add("--patience", type=seconds(), default=300.0, metavar="S", help="seconds to wait for the first step")
        words = "SCRIPT [ARGS...] | -- -m MODULE [ARGS...]"
        add("words", nargs=argparse.REMAINDER, metavar=words, help="the training script, started with this Python")

    def run(self, args: argparse.Namespace) -> int:
        from profiler.lint import lint, lint_json, lint_lines, without_known, write
        from profiler.report.text import plural

        words = args.words[1:] if args.words[:1] == ["--"] else args.words
        if not words:
            raise ProfilerError("nothing to lint: name the script, as in: lint train.py --device cuda")
        if args.steps < 1 or args.devices < 1:
            raise ProfilerError("--steps and --devices must be 1 or more")
        if args.update and (args.baseline is None or args.new_since):
            raise ProfilerError(
                "--update writes all findings to a file: add --baseline FILE, and leave --new-since out"
            )
        is_python = words[0] == "-m" or words[0].endswith(".py")
        result = lint(
            [sys.executable, *words] if is_python else words,
            virtual_cuda="" if args.cpu else f"{args.devices}:{args.card}",
            steps=args.steps,
            ignore=args.ignore,
            patience=args.patience,
            new_since=args.new_since,
        )
        if args.update:
            write(result, args.baseline)
            print(f"{args.baseline}: {plural(len(result.findings), 'finding')} written; review it and commit it")
            return int(Exit.OK)
        if args.baseline is not None:
            result = without_known(result, args.baseline)
        program = f"{'--cpu ' * args.cpu}{'' if is_python and words[0] != '-m' else '-- '}{shlex.join(words)}"
        print(lint_json(result, program) if args.format == "json" else "\n".join(lint_lines(result)))
        return int(Exit.FAIL if result.findings else Exit.OK)


PLUGIN = LintCommand()
