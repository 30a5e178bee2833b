"""Let the waiting host thread sleep instead of spinning on a core."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="blocking-wait",
    removes="a host core that spins while it waits for the device",
    rule="spinning-wait",
    changes={"blocking_wait": True},
    order=120,
)
