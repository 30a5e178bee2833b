"""Log the first five values, at growing intervals."""

from reference_trainer.cures import Fix

PLUGIN = Fix(
    name="quiet-logging",
    removes="whole tensors that are fetched and written at every report",
    rule="noisy-logging",
    changes={"quiet": True},
    order=40,
)
