"""Decides whether a change may go in, by its counters and by its speed.

counters/ compares counts exactly, speed/ interleaves two programs and tests their difference, worktree/ prepares
another git revision, modes/ runs the command, outputs/ writes reports of a `GateResult`.
"""
