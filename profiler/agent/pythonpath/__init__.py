"""Goes on the PYTHONPATH of a recorded program; it is a package only so that a wheel has it."""
