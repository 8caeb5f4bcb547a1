"""The stories of failing locks: `quorumlock lab`."""
