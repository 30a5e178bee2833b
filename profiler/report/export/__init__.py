"""Writes recorded runs in the formats of other tools: Perfetto, speedscope, flamegraph.pl."""
