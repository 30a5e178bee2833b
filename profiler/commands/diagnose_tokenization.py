"""`diagnose-tokenization`: measures ways of tokenizing a text side by side, and says which is fastest here."""

from __future__ import annotations

import argparse
from pathlib import Path

_PASSED_ON = ("corpus", "vocabulary", "preset", "samples", "sample_chars", "seconds", "workers")


class DiagnoseTokenizationCommand:
    """python -m profiler diagnose-tokenization [--corpus PATH] [--out FILE]"""

    name = "diagnose-tokenization"
    help = "measure tokenization one by one, in batches, in parallel and done before; say which is fastest here"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--corpus", type=Path, help="text of the bundled trainer (default: Python's own documentation)")
        size = parser.add_mutually_exclusive_group()
        size.add_argument("--vocabulary", type=int, metavar="N", help="tokens of the vocabulary")
        size.add_argument("--preset", help="the vocabulary of tiny, small or base (default: tiny)")
        add("--samples", type=int, metavar="N", help="samples of a chunk: what a batch call gets")
        add("--sample-chars", type=int, metavar="N", help="characters of a sample")
        add("--seconds", type=float, metavar="S", help="measured time, about")
        add("--workers", type=int, metavar="N", help="threads of the ways that use several (default: the cores)")
        add("--out", type=Path, metavar="FILE", help="write the figures to this file as JSON; nothing is overwritten")

    def run(self, args: argparse.Namespace) -> int:
        from profiler.core.errors import Exit, ProfilerError
        from profiler.record.tokenization import measure_tokenization
        from profiler.report.render.console import print_report
        from profiler.report.render.json import render
        from profiler.report.tokenization import tokenization_report
        from profiler.report.write import write_text

        if args.out and args.out.exists():
            raise ProfilerError(f"--out {args.out} exists already: choose another file")
        given = {f"--{name.replace('_', '-')}": getattr(args, name) for name in _PASSED_ON}
        words = [word for option, value in given.items() if value is not None for word in (option, str(value))]
        document = measure_tokenization(words)
        print_report(tokenization_report(document))
        if args.out:
            write_text(args.out, render(document))
        return int(Exit.OK)


PLUGIN = DiagnoseTokenizationCommand()
