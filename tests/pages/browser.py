# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, for the tests of pages."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1200",
)


def start(profile: Path) -> Any:
    """A browser that nobody sees; the caller quits it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for switch in (*SWITCHES, f"--user-data-dir={profile}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(str(DRIVER)))


class Page:
    """A page that is open, asked and moved as a user would."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.browser = browser
        browser.get_log("browser")
        browser.get(path.as_uri())
        self.settle()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def settle(self) -> None:
        """Wait until the page has drawn what there is to draw."""
        self.browser.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done)));"
        )

    def text(self, id: str) -> str:
        return str(self.run("return document.getElementById(arguments[0]).textContent", id))

    def complaints(self) -> list[Any]:
        """What the browser said of errors and of things that it would not load."""
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def colours(self, id: str) -> int:
        """How many different colours a canvas has, seen at every 7th pixel."""
        return int(
            self.run(
                "const c = document.getElementById(arguments[0]);"
                "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                "const seen = new Set();"
                "for (let i = 0; i < d.length; i += 28)"
                "  seen.add((d[i] << 16) | (d[i+1] << 8) | d[i+2]);"
                "return seen.size",
                id,
            )
        )

    def mouse(self, id: str, kind: str, x: float, y: float, **more: Any) -> None:
        """An event of the mouse at a place of an element, in CSS pixels from its corner."""
        script = """
            const [id, kind, x, y, more] = arguments;
            const e = document.getElementById(id);
            e.scrollIntoView({block: "center"});
            const box = e.getBoundingClientRect();
            const at = {clientX: box.left + x, clientY: box.top + y};
            const init = {bubbles: true, cancelable: true, ...at, ...more};
            const pointer = kind.startsWith("pointer");
            const make = kind === "wheel" ? WheelEvent : pointer ? PointerEvent : MouseEvent;
            e.dispatchEvent(new make(kind, init));
        """
        self.run(script, id, kind, x, y, more)
        self.settle()

    def click(self, id: str, x: float, y: float) -> None:
        self.run(
            "const e = document.getElementById(arguments[0]); e.setPointerCapture = () => {};", id
        )
        for kind in ("pointerdown", "pointerup", "click"):
            self.mouse(id, kind, x, y, pointerId=1)

    def type(self, id: str, text: str) -> None:
        self.run(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input'))",
            id,
            text,
        )
        self.settle()

    def press(self, id: str) -> None:
        self.run("document.getElementById(arguments[0]).click()", id)
        self.settle()

    def draw_time(self) -> float:
        """Milliseconds that drawing everything took, the best of five."""
        times = []
        for _ in range(5):
            self.run("redraw()")
            self.settle()
            times.append(float(self.run("return document.documentElement.dataset.drawMs")))
            time.sleep(0.01)
        return min(times)
