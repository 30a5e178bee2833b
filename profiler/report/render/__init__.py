"""Renderers: each draws every block, and none knows a metric."""
