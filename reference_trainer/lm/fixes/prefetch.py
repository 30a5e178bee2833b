"""Upload the next chunk and put it into the queue while the device works on this one."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="prefetch",
    removes="a device that is idle while the host prepares the next chunk",
    rule="serial-input",
    changes={"prefetch": True},
    order=90,
    requires=("async", "device-loss", "zero-copy"),
)
