"""Compiled kernels of the state-space experiments: random numbers by place, and the recurrence over time.

On a CPU they are Numba functions that write into the memory of torch tensors, on a GPU kernels of numba-cuda on torch's
memory and current stream. Scalar mathematics is written once and compiled for both.
"""
