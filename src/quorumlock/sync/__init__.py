"""The front for threads."""
