"""What stack samples tell: lines, phases, threads, flame graphs, and the categories of time that no record explains."""
