"""A real headless Chromium for tests of pages, driven by Selenium."""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from helpers.packages import have

WAIT_S = 60.0
_QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """One browser; its folder of settings is removed with it. Pages are files of this machine."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Show a page as wide as asked (390 is a phone), in the light or the dark scheme."""
        self._command(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(page.resolve().as_uri())

    def wait(self) -> WebDriverWait[webdriver.Chrome]:
        """Wait for an event of the page: `wait().until(condition)`."""
        return WebDriverWait(self.driver, WAIT_S)

    def texts(self, selector: str) -> list[str]:
        """The visible text of every element of a CSS selector."""
        return [element.text for element in self.driver.find_elements("css selector", selector)]

    def overflow_px(self) -> int:
        """By how much the page is wider than the window; 0 when nothing has to be scrolled aside."""
        script = (
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return int(self.driver.execute_script(script))

    def complaints(self) -> list[str]:
        """What the page's scripts complained of since it was opened, and what it tried to fetch."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def screenshot(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        size = self._command("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

        shot = self._command(
            "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True}
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def _command(self, name: str, words: dict[str, object]) -> dict[str, object]:
        return self.driver.execute_cdp_cmd(name, words)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser; it is ended, and its folder removed, when the block ends."""
    have("chromium", "chromium")
    have("chromedriver", "chromium-driver")
    with tempfile.TemporaryDirectory(prefix="milepost-browser-") as settings:
        options = Options()
        options.binary_location = "/usr/bin/chromium"
        for word in (*_QUIET, f"--user-data-dir={settings}"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
