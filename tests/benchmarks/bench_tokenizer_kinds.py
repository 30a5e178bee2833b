"""Unigram or byte-pair encoding: which costs the training loop less, in training once and in encoding always."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from reference_trainer.lm.corpus import Samples, load_corpus
from reference_trainer.lm.tokenizer import SETTINGS, Tokenizer, _train

pytestmark = pytest.mark.slow
ROUNDS = 5


def best(work: Callable[[], object]) -> float:
    """Seconds of the quickest of ROUNDS: what the work takes when nothing else disturbs it."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


@pytest.mark.parametrize("vocabulary", [256, 4096])
def test_unigram_encodes_faster(vocabulary: int) -> None:
    corpus = load_corpus()
    samples = Samples(corpus, 1_000)
    texts = list(samples)
    rates = {}
    for kind in ("unigram", "bpe"):
        settings = {**SETTINGS, "model_type": kind}
        begin = time.perf_counter()
        model = _train(corpus, vocabulary, settings)
        training = time.perf_counter() - begin
        tokenizer = Tokenizer(model, corpus.text)
        tokens = sum(map(len, tokenizer._processor.encode(texts)))
        single = tokens / best(lambda t=tokenizer: [t.encode(text) for text in texts])
        batch = tokens / best(lambda t=tokenizer: t._processor.encode(texts))
        rates[kind] = batch
        print(
            f"\n{kind} {vocabulary}: trained in {training:.2f} s, {single / 1e6:.1f} M tokens/s text by text, "
            f"{batch / 1e6:.1f} M in one call, {tokenizer.chars_per_token:.2f} characters a token",
            end="",
        )
    print()
    assert rates["unigram"] > rates["bpe"], rates
