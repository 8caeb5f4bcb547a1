"""How many examples hypothesis tries: enough to find a slip, and the same ones every time, on any machine."""

from __future__ import annotations

from hypothesis import settings

examples = settings(max_examples=80, deadline=None, derandomize=True)
"""Put above `@given`."""
