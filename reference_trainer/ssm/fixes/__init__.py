"""The cures of the sweep, one a file, each a switch: what it removes, the rule that should find it, what it changes."""
