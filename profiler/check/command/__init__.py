"""Wiring of the `check` command."""
