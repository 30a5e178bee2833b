"""The bundled trainers: slow programs with fixes that can be switched on one by one, for the profiler to measure."""
