"""What a test needs of its machine. Without it the test is skipped, and says why; in CI it fails."""

from __future__ import annotations

import os

import pytest

from . import clocks, network

CI = bool(os.environ.get("CI"))
needs_clocks = pytest.mark.skipif(
    clocks.missing() is not None and not CI, reason=f"no clock steps: {clocks.missing()}"
)
needs_network = pytest.mark.skipif(
    network.missing() is not None and not CI, reason=f"no partitions: {network.missing()}"
)
