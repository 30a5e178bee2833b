"""Background tokenization against one call a sample, over the whole corpus alone: tokens/s, in interleaved pairs.

With one worker the gain is that of arrays instead of lists; what the second adds is that of the second core.
"""

from __future__ import annotations

import pytest

from reference_trainer.lm.chunks import ChunkedText, Chunks, Source
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.parallel_tokenize import ParallelChunks, available_cores
from reference_trainer.lm.tokenization_ways import Way, run_round
from reference_trainer.lm.tokenizer import train_or_load
from tests.benchmarks.measure import ratio

pytestmark = pytest.mark.slow
PAIRS = 15
EPOCHS = 5  # a round: what workers tokenize beyond its end counts less then
BAR = 1.7  # two workers on two cores over one call a sample


def way(name: str, source: Source) -> Way:
    return Way(name, "", "", 1, lambda: source)


@pytest.mark.skipif(available_cores() < 2, reason="one core: nothing can run beside")
@pytest.mark.parametrize("vocabulary", [256, 4096])
def test_two_workers_over_one_call_a_sample(vocabulary: int) -> None:
    corpus = load_corpus()
    text = ChunkedText(corpus, train_or_load(corpus, vocabulary), 3_000, 8)
    parallel = [way(f"workers: {workers}", ParallelChunks(text, workers=workers)) for workers in (1, 2)]
    ways = [way("sequential", Chunks(text, batch=False)), *parallel]
    chunks = EPOCHS * len(corpus.text) // (text.sample_chars * text.samples_per_chunk)
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    for way in ways:
        run_round(way, text.samples_per_chunk, 0, chunks)
    for pair in range(PAIRS):
        for way in ways if pair % 2 else reversed(ways):
            found = run_round(way, text.samples_per_chunk, pair * chunks, chunks)
            rates[way.name].append(found.tokens / found.seconds)
    gains = {name: ratio(rates[name], rates["sequential"]) for name in ("workers: 1", "workers: 2")}
    print(
        f"\nvocabulary {vocabulary}, {chunks} chunks a round, {sorted(rates['sequential'])[PAIRS // 2]:,.0f} tokens/s"
    )
    for name, gain in gains.items():
        print(f"  {name} over sequential: {gain}")
    assert gains["workers: 2"].value >= BAR, gains
