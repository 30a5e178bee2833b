"""Leave readouts and predictions on the device; fetch the results once a chunk."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="async",
    removes="two syncs and three copies per token: the host waits for every single result",
    rule="per-token-sync",
    changes={"asynchronous": True},
    order=20,
)
