"""Gather the embeddings of a chunk by one kernel out of a table on the device."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="batch-embed",
    removes="a fresh host vector, an allocation and an upload per token",
    rule="tiny-copies",
    changes={"embed": "chunk"},
    order=30,
)
