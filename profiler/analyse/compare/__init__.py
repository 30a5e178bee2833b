"""Sides of a comparison: whether they are comparable, their ratios, and how they were measured."""
