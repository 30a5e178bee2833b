"""Fit all seeds of a combination at once, as one batch dimension."""

from reference_trainer.cures import Fix

PLUGIN = Fix(
    name="batched-seeds",
    removes="a pass of its own for every seed: small operations, each with the cost of a launch",
    rule="tiny-kernels",
    changes={"batched_seeds": True},
    order=50,
)
