"""What a sweep runs on, one engine a file: this process, a pool of processes, a cluster."""
