"""Tokenize the next chunks in background workers while the device works."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="parallel-tokenize",
    removes="tokenization in the thread that launches",
    rule="inline-tokenization",
    changes={"parallel_tokenize": True},
    order=110,
    requires=("batch-tokenize",),
)
