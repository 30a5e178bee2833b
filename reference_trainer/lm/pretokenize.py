"""`python -m reference_trainer.lm.pretokenize`: tokenize a corpus once, into shards that training maps into memory."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.model import preset
from reference_trainer.lm.parallel_tokenize import available_cores
from reference_trainer.lm.settings import Settings
from reference_trainer.lm.shard_writer import Progress, finished_shards, write_shards
from reference_trainer.lm.shards import SHARD_TOKENS, count
from reference_trainer.lm.tokenizer import open_tokenizer
from reference_trainer.program import Parser, flag, guarded

_REFRESH_S = 0.1  # of the progress bar


def _parser() -> Parser:
    defaults = Settings()
    parser = Parser(prog="python -m reference_trainer.lm.pretokenize", description=__doc__)
    add = parser.add_argument
    add("--dataset", type=Path, help="what training takes as --corpus (default: Python's own documentation)")
    add("--output", type=Path, required=True, help="folder of the shards; finished shards in it are kept")
    add("--workers", type=int, default=available_cores(), help="threads (default: %(default)s, the cores)")
    add(
        "--preset",
        default=defaults.preset,
        help="tiny, small, gpu or base: gives the vocabulary (default: %(default)s)",
    )
    add(
        "--tokenizer",
        type=Path,
        metavar="MODEL",
        help="a SentencePiece model instead of one that is trained on the corpus; training needs it too",
    )
    add("--tokens-per-chunk", type=int, default=defaults.tokens_per_chunk, help="as in training (default: %(default)s)")
    add("--samples-per-chunk", type=int, default=defaults.samples_per_chunk, help="likewise (default: %(default)s)")
    add(
        "--shard-tokens",
        type=int,
        default=SHARD_TOKENS,
        help="tokens of a file, which is in memory about four times before it is written (default: %(default)s)",
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit code."""
    for name in ("workers", "tokens_per_chunk", "samples_per_chunk", "shard_tokens"):
        if getattr(arguments, name) < 1:
            raise TrainerError(f"{flag(name)} {getattr(arguments, name)}: must be at least 1")
    vocabulary = preset(arguments.preset).vocabulary
    corpus = load_corpus(arguments.dataset)
    if corpus.skipped:
        print(f"skipped {corpus.skipped} broken lines of {corpus.name}; the first: {corpus.first_skipped}", flush=True)
    tokenizer = open_tokenizer(arguments.tokenizer, corpus, vocabulary)
    text = ChunkedText(corpus, tokenizer, arguments.tokens_per_chunk, arguments.samples_per_chunk)
    samples = len(text.samples)
    existing = finished_shards(arguments.output)  # before the lock: nothing is made in a folder that is not ours
    began = time.perf_counter()
    with _bar(samples) as bar:
        index = write_shards(arguments.output, text, arguments.shard_tokens, workers=arguments.workers, progress=bar)
    took = time.perf_counter() - began
    print(
        f"{corpus.name}: {count(index.tokens, 'token')} in {count(index.samples, 'sample')}, "
        f"{count(len(index.shards), 'shard')} of {index.dtype} in {arguments.output}"
        f"{f' ({existing:,} kept, {len(index.shards) - existing:,} made)' if existing else ''}; {took:.2f} s"
    )
    return 0


@contextmanager
def _bar(samples: int) -> Iterator[Progress | None]:
    """A progress bar on stderr; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("tokenizing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("samples, {task.fields[tokens]:,} tokens"),
        TimeRemainingColumn(),
    )
    # drawn when there is progress: a thread that redraws would take the GIL from the workers
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        task = progress.add_task("", total=samples, tokens=0)
        last_refresh = 0.0

        def show(done: int, tokens: int) -> None:
            nonlocal last_refresh
            if time.monotonic() - last_refresh >= _REFRESH_S:
                last_refresh = time.monotonic()
                progress.update(task, completed=done, tokens=tokens, refresh=True)

        yield show


def main(argv: list[str] | None = None) -> int:
    """Entry point; user errors become one line."""
    arguments = _parser().parse_args(argv)
    interrupted = "interrupted: finished shards are kept, the same command goes on from there"
    return guarded(lambda: run(arguments), interrupted)


if __name__ == "__main__":
    sys.exit(main())
