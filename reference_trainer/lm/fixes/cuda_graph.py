"""Capture the launches of a full chunk once, and replay them as one."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="cuda-graph",
    removes="a launch from the host for every kernel of a chunk",
    rule="launch-bound",
    changes={"graph": True},
    order=130,
    requires=("async", "batch-embed", "batch-recurrence", "batch-decode", "device-loss", "pooled"),
    device="cuda",
    unproven="never run on a GPU yet: ask for it by name",
)
