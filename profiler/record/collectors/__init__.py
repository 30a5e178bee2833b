"""Holds the collectors, one a module: each `PLUGIN` follows `profiler.record.collector.Collector`."""
