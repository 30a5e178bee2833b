"""Counts exactly what a program makes torch do, by the program's lines: operators, floating-point operations, memory,
and reads of values for which it would wait on a GPU.

Two runs of a program that does the same have equal counts. Times of a program that is counted tell nothing.
"""
