"""`--test` checks that as-found and fixed compute the same on this machine, with this text and these weights."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from reference_trainer.devices import kind_of, open_device
from reference_trainer.devices.protocol import Device
from reference_trainer.lm.chunks import Chunks, Source
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.job import check_performance, chunked_text
from reference_trainer.lm.loop import program
from reference_trainer.lm.model import Weights, initial_weights, preset
from reference_trainer.lm.observed import ObservedDevice, Outcome
from reference_trainer.lm.settings import Settings
from reference_trainer.lm.stated import margins, tolerance

CHUNKS = 3
VARIANTS = ("as-found", "fixed")
MOST_TOKENS = 500  # a chunk: the token loop takes its time at the larger presets


def agree(settings: Settings) -> tuple[str, bool]:
    """A line that says whether both ways predict the same, and whether they do."""
    check_performance(settings.performance, kind_of(settings.device)[0])
    short = replace(settings, tokens_per_chunk=min(settings.tokens_per_chunk, MOST_TOKENS))
    text = chunked_text(short, load_corpus(short.corpus), preset(short.preset))
    config = replace(preset(short.preset), vocabulary=text.tokenizer.vocab_size)
    weights = initial_weights(config, short.seed)
    device = open_device(short.device, products=short.products)
    try:
        sources = {way: Chunks(text, batch=True, verbose=short.verbose and way == "fixed") for way in VARIANTS}
        slow, quick = (
            _outcomes(way, source, device, weights, short.tokens_per_chunk) for way, source in sources.items()
        )
        allowed = tolerance(short.stated_dtype, config.width)
        different = ties = total = 0
        for expected, found in zip(slow, quick, strict=True):
            assert expected.logits is not None
            close = margins(expected.logits + weights.decoder_bias) <= allowed
            unequal = expected.predictions != found.predictions
            different += int(np.sum(unequal & ~close))
            ties += int(np.sum(unequal & close))
            total += len(unequal)
        rounding = "" if short.products == "fp32" else f", with products of whole chunks in {short.products}"
        same = f"{total - different - ties} of {total} tokens"
        near = f"; {ties} differ where the two largest logits differ by {allowed:g} or less" if ties else ""
        line = f"as-found and fixed predict the same for {same} on {device.label}{rounding}{near}"
        return line, not different
    finally:
        device.close()


def _outcomes(variant: str, source: Source, device: Device, weights: Weights, tokens: int) -> list[Outcome]:
    """What the variant leaves of the first chunks."""
    observed = ObservedDevice(device, len(weights.decoder_bias))
    run = program(variant, source, cast("Device", observed), weights, tokens)
    with observed.observing():
        return [observed.outcome() for _ in run(iter(range(CHUNKS)))]
