"""Do the recurrence as one kernel, as powers or as a convolution: whichever is fastest at these sizes."""

from reference_trainer.cures import Fix

PLUGIN = Fix(
    name="fused-recurrence",
    removes="a Python loop over time: some launches, and fresh tensors of mixed dtypes, a time step",
    rule="tiny-kernels",
    changes={"recurrence": "measured"},
    order=20,
)
