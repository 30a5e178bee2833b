"""The engines of a sweep, one per file: this process, a pool of processes, a Ray cluster."""
