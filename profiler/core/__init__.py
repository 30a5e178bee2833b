"""What every package may use: errors, units, plug-ins, /proc, atomic files. Imports nothing else of the project."""
