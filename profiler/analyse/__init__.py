"""Analysis of recorded runs: pure functions from a `Run` to values. `analysis.analyse` combines them all."""
