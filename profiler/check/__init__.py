"""Whether a change may go in: counters held against limits, and two revisions' times held against each other.

Pure: what is measured comes in as `Round` and `Counted`, a `GateResult` goes out. Nothing here starts a program.
"""
