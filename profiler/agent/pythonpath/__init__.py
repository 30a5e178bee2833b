"""The folder that goes on the PYTHONPATH of a recorded program; a package only so that a wheel has it."""
