"""`diagnose-tokenization`: measures ways of tokenizing a text side by side, and says which is fastest here."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler.core.errors import Exit, ProfilerError
from reference_trainer.errors import missing_packages

if TYPE_CHECKING:
    import subprocess

SCHEMA: Final = "tokenization/2"
_MODULE: Final = "reference_trainer.lm.tokenization"
_WAKE_S: Final = 0.1
_GRACE_S: Final = 5.0  # from Ctrl-C until it is killed
_PASSED_ON = ("corpus", "vocabulary", "preset", "samples", "sample_chars", "seconds", "workers")


class DiagnoseTokenizationCommand:
    """python -m profiler diagnose-tokenization [--corpus PATH] [--out FILE]"""

    name = "diagnose-tokenization"
    help = "measure tokenization text by text, in batches, in parallel and in advance; show which is fastest"
    examples = ("diagnose-tokenization", "diagnose-tokenization --preset small --seconds 10")

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--corpus", type=Path, help="text of the bundled trainer (default: Python's own documentation)")
        size = parser.add_mutually_exclusive_group()
        size.add_argument("--vocabulary", type=int, metavar="N", help="size of the vocabulary")
        size.add_argument("--preset", help="the vocabulary of tiny, small, gpu or base (default: tiny)")
        add("--samples", type=int, metavar="N", help="samples per chunk (per batched call)")
        add("--sample-chars", type=int, metavar="N", help="characters per sample")
        add("--seconds", type=float, metavar="S", help="approximate measured time")
        add("--workers", type=int, metavar="N", help="threads of the parallel variants (default: number of cores)")
        add(
            "--out",
            type=Path,
            metavar="FILE",
            help="write the results as JSON to this file, which must not exist",
        )

    def run(self, args: argparse.Namespace) -> int:
        from profiler.report.render.console import print_report
        from profiler.report.render.json import render
        from profiler.report.write import write_text
        from reference_trainer.report.tokenization_report import tokenization_report

        if args.out and args.out.exists():
            raise ProfilerError(f"--out {args.out} exists already: choose another file")
        options = {f"--{name.replace('_', '-')}": getattr(args, name) for name in _PASSED_ON}
        arguments = [text for name, value in options.items() if value is not None for text in (name, str(value))]
        document = measure_tokenization(arguments)
        print_report(tokenization_report(document))
        if args.out:
            write_text(args.out, render(document))
        return int(Exit.OK)


def measure_tokenization(options: Sequence[str]) -> dict[str, Any]:
    """Run the measurement with these options; the document that it prints.

    :raises ProfilerError: the trainer is not installed, or it failed (with its message and exit code).
    """
    import signal
    import subprocess

    from profiler.record.signals import handled_signals
    from reference_trainer.report.trainers import failure

    if missing := missing_packages():
        raise ProfilerError(missing)
    interrupts: list[int] = []  # an exception could arrive while the program is started, which would then keep running
    with handled_signals(lambda number, _: interrupts.append(number), (signal.SIGINT,)):
        process = subprocess.Popen(
            (sys.executable, "-m", _MODULE, *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        out, err = _wait(process, interrupts)
    if interrupts or process.returncode == Exit.INTERRUPTED:
        raise ProfilerError("interrupted; nothing was measured", Exit.INTERRUPTED)
    if process.returncode:
        raise failure("the measurement of tokenization", process.returncode, err)
    return _document(out)


def _wait(process: subprocess.Popen[str], interrupts: Sequence[int]) -> tuple[str, str]:
    """Wait for the program and return its output. Ctrl-C is passed on; a program that does not stop then is killed."""
    import signal
    import subprocess

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


def _document(out: str) -> dict[str, Any]:
    try:
        document = json.loads(out)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ProfilerError(f"the measurement of tokenization did not print {SCHEMA}", Exit.TARGET_FAILED)
    return document


PLUGIN = DiagnoseTokenizationCommand()
