"""Renders blocks: each renderer draws every block, and none knows a metric."""
