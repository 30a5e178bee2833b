"""The trainer that has the illness and its cure: the profiler's patient, and a program like anyone's."""
