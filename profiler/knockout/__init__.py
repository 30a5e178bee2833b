"""Measures what findings are worth: runs the program with and without what they blame, where it can change nothing."""
