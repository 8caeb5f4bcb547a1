"""The dashboard: `quorumlock serve`. It sees locks through the public API alone, and needs quorumlock[web]."""
