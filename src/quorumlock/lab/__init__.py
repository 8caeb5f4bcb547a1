"""Where locks are tried out: real servers on loopback, and later a simulator."""
