"""Recordings of other tools -> Run, one format a file; `profiler.run.load` asks here for what is no run directory."""
