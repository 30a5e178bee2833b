"""Tells where the time of steps goes, from recorded steps, regions, calls, activities and counters."""
