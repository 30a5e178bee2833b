"""`--test` checks that as-found and fixed compute the same on this machine, with this text and these weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reference_trainer.devices import kind_of, open_device
from reference_trainer.lm.chunks import Chunks
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.job import check_performance, chunked_text
from reference_trainer.lm.model import initial_weights, preset
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import Plan, plan, variant_fixes
from reference_trainer.lm.settings import Settings
from reference_trainer.lm.stated import tolerance

CHUNKS = 3
MOST_TOKENS = 500  # a chunk: the token loop takes its time at the larger presets


def agree(settings: Settings) -> tuple[str, bool]:
    """A line that says whether both ways predict the same, and whether they do."""
    check_performance(settings.performance, kind_of(settings.device)[0])
    short = replace(settings, tokens_per_chunk=min(settings.tokens_per_chunk, MOST_TOKENS))
    text = chunked_text(short, load_corpus(short.corpus), preset(short.preset))
    config = replace(preset(short.preset), vocabulary=text.tokenizer.vocab_size)
    chunks = Chunks(text, batch=True, verbose=short.verbose)
    weights = initial_weights(config, short.seed)
    device = open_device(short.device, products=short.products)
    try:
        fixed = plan(variant_fixes("fixed", device.kind), device.kind)
        slow, quick = (Pipeline(device, config, weights, short.tokens_per_chunk, chosen) for chosen in (Plan(), fixed))
        allowed = tolerance(short.stated_dtype, config.width)
        different = ties = total = 0
        for index in range(CHUNKS):
            ids = chunks.ids(index)
            outcomes = []
            for way in (slow, quick):
                way.submit(ids, keep=True)
                way.collect()
                outcomes.append(way.outcome())
            expected, found = outcomes
            assert expected.margins is not None
            unequal = expected.predictions != found.predictions
            different += int(np.sum(unequal & (expected.margins > allowed)))
            ties += int(np.sum(unequal & (expected.margins <= allowed)))
            total += len(ids) - 1
        rounding = "" if short.products == "fp32" else f", with products of whole chunks in {short.products}"
        same = f"{total - different - ties} of {total} tokens"
        near = f"; {ties} differ where the two largest logits differ by {allowed:g} or less" if ties else ""
        line = f"as-found and fixed predict the same for {same} on {device.label}{rounding}{near}"
        return line, not different
    finally:
        device.close()
