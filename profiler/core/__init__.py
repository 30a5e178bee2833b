"""What every room may use: errors, units, plug-in discovery. Imports nothing of the project."""
