"""Wall clocks of servers that can be stepped: a small library is built and loaded into them."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock_shim.c")


def missing() -> str | None:
    """Why there can be none here."""
    return None if shutil.which("cc") else "there is no C compiler (cc)"


def build(folder: Path) -> Path:
    """The library."""
    library = folder / "clock_shim.so"
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE], check=True, timeout=60
    )
    return library


class Clock:
    """How far one server's wall clock is off."""

    def __init__(self, library: Path, name: str) -> None:
        path = library.with_name(f"{name}.clock")
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self.command = ["env", f"LD_PRELOAD={library}", f"CHAOS_CLOCK={path}"]
        """To be put in front of the server's: `env` becomes the server, so its process id is the server's."""
        self._offset = 0.0

    @property
    def offset(self) -> float:
        return self._offset

    @offset.setter
    def offset(self, seconds: float) -> None:
        self._offset = seconds
        self._map[:] = struct.pack("=q", round(seconds * 1e9))  # eight bytes, aligned: one store

    def close(self) -> None:
        self._map.close()
