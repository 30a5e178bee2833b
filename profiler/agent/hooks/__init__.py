"""Holds the hooks: one file for each library whose functions are recorded, installed when it is imported."""
