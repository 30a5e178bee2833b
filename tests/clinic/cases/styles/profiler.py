"""The profiler of the user."""
