"""Sections and commands of the profiler for these trainers only; the profiler finds them through entry points."""
