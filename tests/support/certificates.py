"""Certificates of the tests' own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.servers.base import needed


def make_certificate(folder: Path, *, days: int = 1) -> tuple[Path, Path]:
    """One for loopback that nobody else has signed, and its key."""
    openssl = shutil.which("openssl")
    needed([] if openssl else ["openssl"])
    assert openssl is not None
    made, key = folder / "crt.pem", folder / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(days), "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(made)],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key
