"""Where the chunks come from, by the plan: tokenized in line, in background workers, or before training."""

from __future__ import annotations

from reference_trainer.lm.chunks import Chunks, Source
from reference_trainer.lm.corpus import Corpus
from reference_trainer.lm.plan import Plan
from reference_trainer.lm.settings import Settings
from reference_trainer.lm.tokenizer import Tokenizer


def open_source(settings: Settings, chosen: Plan, corpus: Corpus, tokenizer: Tokenizer) -> Source:
    """The same chunks whatever the plan; to be closed.

    :raises TrainerError: a text too short for a chunk, or shards that do not fit.
    """
    tokens, samples = settings.tokens_per_chunk, settings.samples_per_chunk
    if chosen.tokenize == "shards":
        from reference_trainer.lm.shard_writer import ensure_shards
        from reference_trainer.lm.shards import ShardChunks, planned_index

        directory = ensure_shards(corpus, tokenizer, tokens, samples, settings.shards)
        planned = planned_index(corpus, tokenizer, tokens, samples)
        return ShardChunks(directory, planned, tokens, samples, verbose=settings.verbose)
    if chosen.parallel_tokenize:
        from reference_trainer.lm.parallel_tokenize import ParallelChunks

        return ParallelChunks(corpus, tokenizer, tokens, samples, verbose=settings.verbose)
    batch = chosen.tokenize == "batch"
    return Chunks(corpus, tokenizer, tokens, samples, batch=batch, verbose=settings.verbose)
