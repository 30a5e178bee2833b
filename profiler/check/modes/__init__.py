"""Runs the modes of `check`, from the command line to an exit code."""
