"""Callbacks for libraries that run the training loop: they name its phases, and log its throughput."""
