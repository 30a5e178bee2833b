"""What the profiler shows of these trainers only: it enters its commands and reports through entry points."""
