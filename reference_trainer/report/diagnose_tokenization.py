"""`diagnose-tokenization`: measures ways of tokenizing a text side by side, and says which is fastest here."""

from __future__ import annotations

import argparse
from pathlib import Path

from profiler.core.errors import Exit, ProfilerError
from reference_trainer.errors import TrainerError, missing_packages


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
        if missing := missing_packages():
            raise ProfilerError(missing)
        from reference_trainer.lm.tokenization import measured

        try:
            document = measured(args)
        except TrainerError as error:
            raise ProfilerError(str(error), Exit(error.exit_code)) from None
        except KeyboardInterrupt:
            raise ProfilerError("interrupted; nothing was measured", Exit.INTERRUPTED) from None
        print_report(tokenization_report(document))
        if args.out:
            write_text(args.out, render(document))
        return int(Exit.OK)


PLUGIN = DiagnoseTokenizationCommand()
