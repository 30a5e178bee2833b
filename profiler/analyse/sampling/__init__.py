"""Tells from stack samples the lines, phases, threads and flame graphs, and where time goes that no record explains."""
