"""Defines the results of analysing recorded runs, as frozen dataclasses by topic."""
