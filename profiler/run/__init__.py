"""Defines recorded runs: their types, their files, how they are written and loaded."""
