"""Theirs."""

KILO = 1000
