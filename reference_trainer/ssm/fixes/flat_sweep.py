"""Put all jobs into one pool of workers, on all cores and devices."""

from reference_trainer.cures import Fix

PLUGIN = Fix(
    name="flat-sweep",
    removes="jobs that wait for each other: one process does one after another, whatever else is idle",
    rule="sequential-sweep",
    changes={"flat": True},
    order=60,
)
