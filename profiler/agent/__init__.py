"""Runs inside of the recorded program: the recorder of a process, and the hooks that find steps and waits."""
