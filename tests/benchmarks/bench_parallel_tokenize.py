"""Background tokenization against one call a sample, over the whole corpus alone: tokens/s, in interleaved pairs.

With one worker the gain comes from arrays instead of lists, with the second worker also from the second core.
"""

from __future__ import annotations

from functools import partial
from statistics import median

import pytest

from reference_trainer.lm.chunks import ChunkedText, Chunks, Source
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.parallel_tokenize import ParallelChunks
from reference_trainer.lm.tokenization import Way, run_round
from reference_trainer.lm.tokenizer import train_or_load
from tests.benchmarks.measure import BAR, interleaved, ratio, two_cores

pytestmark = pytest.mark.slow
PAIRS = 15
EPOCHS = 5  # of a round: the work of the workers beyond its end weighs less then


@two_cores
@pytest.mark.parametrize("vocabulary", [256, 4096])
def test_two_workers_over_one_call_a_sample(vocabulary: int) -> None:
    corpus = load_corpus()
    text = ChunkedText(corpus, train_or_load(corpus, vocabulary), 3_000, 8)
    chunks = EPOCHS * len(corpus.text) // (text.sample_chars * text.samples_per_chunk)
    sources: dict[int, Source] = {count: ParallelChunks(text, workers=count) for count in (1, 2)}
    sources[0] = Chunks(text, batch=False)

    def tokenize(source: Source, pair: int) -> float:
        done = run_round(Way("", "", "", 1, lambda: source), text.samples_per_chunk, pair * chunks, chunks)
        return done.tokens / done.seconds

    rates = interleaved({count: partial(tokenize, source) for count, source in sources.items()}, PAIRS + 1)
    rates = {count: values[1:] for count, values in rates.items()}  # the first round warms up
    gains = {count: ratio(rates[count], rates[0]) for count in (1, 2)}
    print(f"\nvocabulary {vocabulary}, {chunks} chunks a round, {median(rates[0]):,.0f} tokens/s")
    for count, gain in gains.items():
        print(f"  workers: {count} over sequential: {gain}")
    assert gains[2].value >= BAR, gains
