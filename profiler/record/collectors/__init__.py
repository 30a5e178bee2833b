"""One collector a module, each with a `PLUGIN`: a class that follows `profiler.record.collector.Collector`."""
