"""Read token ids from memory-mapped shards that were written before training."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="pretokenize",
    removes="all tokenization, of every epoch",
    rule="inline-tokenization",
    changes={"tokenize": "shards"},
    order=210,
    excludes=("batch-tokenize", "parallel-tokenize"),
    kind="instead",
)
