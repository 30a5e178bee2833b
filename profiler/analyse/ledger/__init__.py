"""Divides the time of a run into cells: what took how long, when, whose and where."""
