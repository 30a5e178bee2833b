"""Reduce loss, accuracy and reward on the device."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="device-loss",
    removes="predictions that visit the host to be compared, and rewards that go back",
    rule="host-loss",
    changes={"loss": "device"},
    order=60,
)
