"""Counters per step: what a recorded run counted, the checked-in baseline, and the exact comparison of two sides."""
