"""Draw teachers, measurements and students where they are used, in fp32, by one kernel."""

from reference_trainer.cures import Fix

PLUGIN = Fix(
    name="device-data",
    removes="measurements and first parameters that are drawn on the host in fp64 and moved",
    rule="host-data",
    changes={"device_data": True},
    order=10,
)
