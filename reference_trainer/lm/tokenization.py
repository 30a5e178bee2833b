"""`python -m reference_trainer.lm.tokenization`: measures the ways of tokenizing a text side by side, and prints JSON.

`python -m profiler diagnose-tokenization` runs it and draws a table.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText
from reference_trainer.lm.corpus import Corpus, load_corpus
from reference_trainer.lm.model import preset
from reference_trainer.lm.parallel_tokenize import available_cores
from reference_trainer.lm.settings import Settings
from reference_trainer.lm.tokenization_ways import Measured, Way, measure, ways
from reference_trainer.lm.tokenizer import Tokenizer, train_or_load
from reference_trainer.program import Parser, flag, guarded

SCHEMA: Final = "tokenization/1"
"""Schema of the JSON document. Its number rises when a key changes its meaning or is removed."""
MOST_CHARS: Final = 20_000_000
"""Only the beginning of a longer corpus is measured: its shards are written to the user's cache."""
LEAST_TOKENS: Final = 16
"""Average tokens of a chunk: a chunk of one token has nothing to predict."""
SECONDS: Final = 10.0


def _parser() -> Parser:
    defaults = Settings()
    parser = Parser(prog="python -m reference_trainer.lm.tokenization", description=__doc__)
    add = parser.add_argument
    add("--corpus", type=Path, help="what training takes (default: Python's own documentation)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--vocabulary", type=int, help="tokens of the vocabulary")
    size.add_argument("--preset", default=defaults.preset, help="vocabulary of tiny, small, gpu or base (%(default)s)")
    add("--samples", type=int, default=defaults.samples_per_chunk, help="samples of a chunk (default: %(default)s)")
    add("--sample-chars", type=int, help=f"default: such that a chunk has about {defaults.tokens_per_chunk} tokens")
    add("--seconds", type=float, default=SECONDS, help="approximate measured time (default: %(default)s)")
    add("--workers", type=int, default=available_cores(), help="threads (default: %(default)s, the cores)")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit code."""
    for name, minimum in (("vocabulary", 1), ("samples", 1), ("sample_chars", 1), ("workers", 1)):
        value = getattr(arguments, name)
        if value is not None and value < minimum:
            raise TrainerError(f"{flag(name)} {value}: must be at least {minimum}")
    if not 0 < arguments.seconds < float("inf"):
        raise TrainerError(f"--seconds {arguments.seconds}: must be a number of seconds above 0")
    vocabulary = arguments.vocabulary or preset(arguments.preset).vocabulary
    corpus = _beginning(load_corpus(arguments.corpus))
    text = _chunked_text(arguments, corpus, train_or_load(corpus, vocabulary))
    all_ways = tuple(ways(text, arguments.workers))
    document = _document(text, all_ways, measure(all_ways, text.samples_per_chunk, arguments.seconds))
    print(json.dumps(document))
    return 0


def _beginning(corpus: Corpus) -> Corpus:
    if len(corpus.text) <= MOST_CHARS:
        return corpus
    text = corpus.text[:MOST_CHARS]
    return replace(corpus, text=text, sha256=hashlib.sha256(text.encode()).hexdigest())


def _chunked_text(arguments: argparse.Namespace, corpus: Corpus, tokenizer: Tokenizer) -> ChunkedText:
    tokens = Settings().tokens_per_chunk
    if arguments.sample_chars is not None:
        tokens = round(arguments.sample_chars * arguments.samples / tokenizer.chars_per_token)
        if tokens < LEAST_TOKENS:
            raise TrainerError(
                f"--sample-chars {arguments.sample_chars}: {arguments.samples} of them have about {tokens} tokens, "
                f"a chunk needs {LEAST_TOKENS}: raise it, or --samples"
            )
    return ChunkedText(corpus, tokenizer, tokens, arguments.samples)


def _document(text: ChunkedText, all_ways: Sequence[Way], results: dict[str, Measured]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "corpus": text.corpus.name,
        "corpus_sha256": text.corpus.sha256,
        "corpus_chars": len(text.corpus.text),
        "tokenizer": text.tokenizer.fingerprint,
        "vocabulary": text.tokenizer.vocab_size,
        "samples_per_chunk": text.samples_per_chunk,
        "sample_chars": text.sample_chars,
        "cores": available_cores(),
        "rounds": max(measured.ratio.n for measured in results.values()),
        "baseline": all_ways[0].name,
        "ways": [
            {
                "name": way.name,
                "library": way.library,
                "how": way.how,
                "threads": way.threads,
                "same_ids": way.same,
                "tokenizes": way.tokenizes,
                "measured": asdict(results[way.name]) if way.name in results else None,
            }
            for way in all_ways
        ],
        "not_measured": {f"ways.{i}.measured": way.missing for i, way in enumerate(all_ways) if way.missing},
    }


def main(argv: list[str] | None = None) -> int:
    """Entry point; user errors become one line."""
    arguments = _parser().parse_args(argv)
    return guarded(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
