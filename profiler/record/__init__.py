"""Left of the wall: starts a program, samples it from outside, and writes the run directory. Analyses nothing."""
