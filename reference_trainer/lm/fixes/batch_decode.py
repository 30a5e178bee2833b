"""Compute all logits of a chunk by one product and all predictions by one kernel."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="batch-decode",
    removes="a launch, two copies, two allocations and a sync per token for the decoder",
    rule="tiny-kernels",
    changes={"decode": "chunk"},
    order=50,
)
