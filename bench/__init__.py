"""Benchmarks: `python -m bench pair | faults | keep | handover | idle`."""
