"""Basics for every package: errors, units, plug-ins, /proc, atomic files. Nothing here imports another package."""
