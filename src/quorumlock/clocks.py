"""The clock that leases are measured with."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

if hasattr(time, "CLOCK_BOOTTIME"):
    boot_time: Callable[[], float] = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    boot_time = time.monotonic
"""Seconds that never jump and, where the system can, go on while the machine is suspended."""
