"""Tokenize all samples of a chunk in one call of the library."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="batch-tokenize",
    removes="one call of the tokenizer, and a list of ids, per sample",
    rule="inline-tokenization",
    changes={"tokenize": "batch"},
    order=10,
)
