"""The sections of a report: one a file, each with one PLUGIN; adding one is adding a file."""
