"""Allocate device memory once."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="pooled",
    removes="device allocations in every step",
    rule="allocation-churn",
    changes={"pooled": True},
    order=70,
)
