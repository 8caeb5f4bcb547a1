"""What keeps the locks: one folder an engine, the same file names in each."""
