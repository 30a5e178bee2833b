"""Run the layers over the whole chunk: matrix products, and time inside one kernel a layer."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="batch-recurrence",
    removes="a launch, an allocation and a sync per token for the recurrent layers",
    rule="tiny-kernels",
    changes={"recurrence": "chunk"},
    order=40,
)
