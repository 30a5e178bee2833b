"""`python -m reference_trainer.lm`: train the language model, as found or with fixes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reference_trainer.devices import NAMES
from reference_trainer.errors import TrainerError
from reference_trainer.lm.settings import CHECKPOINT_EVERY, EVALUATE_EVERY, PLAIN, UNUSED, Settings
from reference_trainer.performance import add_options, from_options
from reference_trainer.program import Parser, asked_fixes, check_output, guarded, path_of, write_output

if TYPE_CHECKING:
    from reference_trainer.lm.result import Summary

_PATHS: Final = ("corpus", "tokenizer", "shards", "metrics", "checkpoint")
"""Settings that are paths."""


def _parser() -> Parser:
    defaults = Settings()
    parser = Parser(prog="python -m reference_trainer.lm", description=__doc__)
    add = parser.add_argument
    add(
        "--variant",
        help=f"as-found or fixed, or in plain PyTorch {' or '.join(PLAIN)} (default: {defaults.variant})",
    )
    add("--fixes", help="fixes by name, separated by commas, instead of a variant's; none: an empty text")
    add("--preset", default=defaults.preset, help="tiny, small, gpu or base (default: %(default)s)")
    add("--device", default=defaults.device, help=f"{', '.join(NAMES)} (default: %(default)s: CUDA where there is one)")
    add(
        "--dtype",
        default=defaults.dtype,
        help="fp32, tf32 or bf16: rounding of the inputs of matrix products of whole chunks (default: %(default)s)",
    )
    add("--tokens-per-chunk", type=int, default=defaults.tokens_per_chunk, help="default: %(default)s")
    add("--samples-per-chunk", type=int, default=defaults.samples_per_chunk, help="default: %(default)s")
    add(
        "--corpus",
        help=".txt or .jsonl, plain, .gz or .zst, or a folder of these; default: Python's own docs",
    )
    add("--tokenizer", metavar="MODEL", help="a SentencePiece model (default: one is trained on the corpus)")
    add("--seed", type=int, default=defaults.seed, help="of the initial weights (default: %(default)s)")
    add("--max-chunks", type=int, help="measure so many chunks instead of --seconds")
    add("--seconds", type=float, default=defaults.seconds, help="measured time (default: %(default)s)")
    add(
        "--warmup-seconds",
        type=float,
        default=defaults.warmup_seconds,
        help="default: %(default)s, at least one chunk, three in a recording",
    )
    add("--empty-kernels", action="store_true", help="launch empty kernels: the least that the calls can cost")
    add(
        "--shards",
        help="folder of pre-tokenized shards, for the fix pretokenize (default: made in the cache)",
    )
    add(
        "--metrics",
        help="write loss, accuracy and speed to this file (metrics_history.json): a row for every reading of the "
        "metrics, every step, every 16 with quiet-logging",
    )
    _add_learning(parser.add_argument_group("learning, with the fix learn"))
    add_options(parser, UNUSED)
    add("--list-fixes", action="store_true", help="print all fixes as JSON, for a ladder of them, and stop")
    add(
        "--roofline",
        metavar="CARD",
        help="print how fast the preset would be on a100, h100, h200, b200 or all by a model, and stop",
    )
    add("--test", action="store_true", help="check that as-found and fixed agree on three short chunks, and stop")
    add("--result", help="write the summary to this file as JSON")
    add("--verbose", action="store_true", help="print how long the tokenization of every chunk took")
    return parser


def _add_learning(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--lr", type=float, help="highest learning rate")
    add("--warmup-steps", type=int, help="steps over which the learning rate rises to it")
    add("--total-steps", type=int, help="step from which on the learning rate stays at its least")
    add("--weight-decay", type=float, help="of matrices; biases do not decay")
    add("--clip-norm", type=float, help="gradients of a larger norm are scaled down to it")
    add(
        "--evaluate-every",
        type=int,
        metavar="CHUNKS",
        help=f"look at held-out text after so many; 0: at the end (default: {EVALUATE_EVERY})",
    )
    add("--checkpoint", metavar="DIR", help="write checkpoints to this folder; the last one is kept")
    add(
        "--checkpoint-every",
        type=int,
        metavar="CHUNKS",
        help=f"fewest from one to the next (default: {CHECKPOINT_EVERY})",
    )
    add("--resume", action="store_true", help="go on from the checkpoint; --max-chunks counts those before it too")


def _settings(arguments: argparse.Namespace) -> Settings:
    fields = Settings.__dataclass_fields__.keys() - {*_PATHS, "variant", "fixes", "performance"}
    values: dict[str, Any] = {name: value for name, value in vars(arguments).items() if name in fields}
    values.update(asked_fixes(arguments))
    values.update((name, path_of(arguments, name)) for name in _PATHS)
    return Settings(**values, performance=from_options(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Do what the command line asks for; the exit code."""
    settings, result = _settings(arguments), path_of(arguments, "result")
    if arguments.test:
        from reference_trainer.lm.selftest import agree

        line, equal = agree(settings)
        print(line)
        return 0 if equal else 1
    if arguments.roofline:
        from reference_trainer.lm import roofline
        from reference_trainer.lm.model import preset

        config = preset(settings.preset)
        card, tokens = arguments.roofline, settings.tokens_per_chunk
        print("\n".join(roofline.table(settings.preset, config, card, settings.products, tokens)))
        return 0
    if arguments.list_fixes:
        from reference_trainer.devices import kind_of
        from reference_trainer.lm.plan import listing

        print(json.dumps(listing(kind_of(settings.device)[0])))
        return 0
    return _train(settings, result)


def _train(settings: Settings, result: Path | None) -> int:
    from reference_trainer.lm.model import preset

    preset(settings.preset)  # an unknown one is an error before the compiled code is imported, which takes a second
    from reference_trainer.lm import loop, plain_torch
    from reference_trainer.lm.result import NotWrittenError

    if result:  # better known before the training than after
        check_output("--result", result)
    fault: TrainerError | None = None
    try:
        train = plain_torch.train if settings.variant in PLAIN else loop.train
        summary = train(settings, progress=lambda line: print(line, flush=True))
    except NotWrittenError as error:
        summary, fault = error.summary, error
    for line in _lines(summary):
        print(line)
    if result:
        write_output("--result", result, json.dumps(_finite(asdict(summary))) + "\n")
    if fault:
        raise fault
    return 0


def _finite(value: Any) -> Any:
    """The same document with null for every number that JSON does not have: NaN and infinities."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value if not isinstance(value, float) or isfinite(value) else None


def _lines(summary: Summary) -> Iterator[str]:
    """The lines of the summary."""
    learned = "" if summary.loss is None else f", loss {summary.loss:.4f}, accuracy {summary.accuracy:.4f}"
    yield (
        f"{summary.tokens_per_s:,.0f} tokens/s: {summary.tokens:,} tokens in {summary.chunks} chunks, "
        f"{summary.seconds:.2f} s{learned}"
    )
    if summary.heldout_loss is not None:
        yield from yardstick_lines(summary)


def yardstick_lines(summary: Summary) -> Iterator[str]:
    """The results on held-out text, this model's and others'."""
    yield f"on held-out text, where guessing costs ln V = {summary.uniform_loss:.3f} nats:"
    for model in summary.yardsticks:
        cpu = "" if model.cpu_s is None else f", {model.cpu_s:.1f} s of CPU time"
        yield (
            f"  {model.name:14s} cross-entropy {model.loss:.3f} nats, accuracy {model.accuracy:.1%}, "
            f"learned from {model.tokens:,} tokens{cpu}"
        )


def main(argv: list[str] | None = None) -> int:
    """Entry point; user errors become one line."""
    arguments = _parser().parse_args(argv)
    return guarded(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
