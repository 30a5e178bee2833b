"""Writes the verdict of `check` for people, for continuous integration and for programs."""
