"""Pinned staging memory and NumPy views instead of fresh vectors and lists."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="zero-copy",
    removes="fresh host vectors, lists, and pageable copies that are staged",
    rule="pageable-copies",
    changes={"zero_copy": True},
    order=80,
)
