"""A real browser, without a screen: the system's chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page, Request, sync_playwright

BINARIES = ("chromium", "chromium-browser", "google-chrome")


def binary() -> str:
    """Where the browser is. One that is missing skips a test; never in CI."""
    found = next((path for path in map(shutil.which, BINARIES) if path), None)
    if found is None and os.environ.get("CI"):
        raise pytest.UsageError("CI must not skip: there is no chromium")
    if found is None:
        pytest.skip("no chromium here (scripts/servers.sh installs it)")
    return found


def meek(program: str, folder: Path) -> str:
    """The same, without the right to be served before all others: what root's browser would take for itself."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return program
    wrapper = folder / "browser"
    wrapper.write_text(f'#!/bin/sh\nexec setpriv --inh-caps -sys_nice --bounding-set -sys_nice {program} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


@contextmanager
def running(folder: Path) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=meek(binary(), folder),
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
        )
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page, and everything that should not have happened on it."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(30_000)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.strange: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", self._failed)
        self.page.on("dialog", self._alerted)
        self.page.on("request", self._asked)

    def _said(self, said: ConsoleMessage) -> None:
        if said.type != "log":
            self.problems.append(said.text)

    def _failed(self, error: Error) -> None:
        self.problems.append(str(error))

    def _alerted(self, dialog: Dialog) -> None:
        self.problems.append(f"alert: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.strange.append(request.url)

    def go(self, path: str = "") -> Page:
        self.page.goto(self.url + path)
        self.page.wait_for_selector(".live.is-live")
        return self.page

    def end(self) -> None:
        """Nothing was said on the console, and nobody else was asked for anything."""
        self.context.close()
        assert self.problems == [], self.problems
        assert self.strange == [], self.strange
