"""Servers that tests start, whichever they are. Valkey and Redis come from `quorumlock.lab.servers`."""
