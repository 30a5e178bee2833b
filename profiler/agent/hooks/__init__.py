"""Hooks: one file for each library whose functions are recorded, installed when the program imports it."""
