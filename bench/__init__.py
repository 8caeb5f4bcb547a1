"""Benchmarks: `python -m bench pair` and `python -m bench faults`."""
