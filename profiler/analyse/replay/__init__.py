"""Simulates the steps of a run again, as they were recorded or with a change: what a cure would give."""
