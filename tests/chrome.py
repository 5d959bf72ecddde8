"""A headless Chromium, driven over chromedriver's HTTP protocol (W3C WebDriver)."""

import json
import os
import shutil
import subprocess
import time
import urllib.request
from contextlib import suppress
from typing import Any

import pytest
from calling import PATIENCE, free_port

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--mute-audio"),
)
KEYS = {"ArrowUp": "\ue013", "ArrowRight": "\ue014", "Enter": "\ue007"}


class Chrome:
    """A separate browser with an empty profile in `folder`; `close` ends it."""

    def __init__(self, folder):
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        driver = shutil.which("chromedriver")
        if browser is None or driver is None:
            pytest.skip("no Chromium and chromedriver to show pages in")
        options = [*OPTIONS, f"--user-data-dir={folder}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")
        port = free_port()
        self._driver = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._base = f"http://127.0.0.1:{port}"
        wanted = {
            "goog:chromeOptions": {"binary": browser, "args": options},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": round(1000 * PATIENCE)},
        }
        try:
            self._wait_for_driver()
            made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._driver.kill()
            raise
        self._base += f"/session/{made['sessionId']}"

    def close(self):
        with suppress(OSError):
            self._call("DELETE", "")
        self._driver.terminate()
        self._driver.wait(PATIENCE)

    def open(self, page, *, width=1200, height=800, dark=False):
        """Show a page from the top."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._command("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", features=[scheme])
        self.visit(page.as_uri())

    def visit(self, address):
        """Show what is at an address."""
        self._call("POST", "/url", {"url": address})

    def run(self, script):
        """The value of a JavaScript expression."""
        return self._call("POST", "/execute/sync", {"script": f"return {script}", "args": []})

    def wait(self, script):
        """Wait until the expression is true; a busy machine may take long."""
        until = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < until, f"never: {script}"
            time.sleep(0.05)

    def click(self, selector, x=0.5, y=0.5, *, by="mouse"):
        """Press and release the mouse, or by touch, within an element: shares of its size."""
        find = f"document.querySelector('{selector}')"
        self.run(f"{find}.scrollIntoView({{block: 'center'}})")
        box = self.run(f"{find}.getBoundingClientRect().toJSON()")
        place = {
            "x": round(box["left"] + x * box["width"]),
            "y": round(box["top"] + y * box["height"]),
        }
        actions: list[dict[str, Any]] = [{"type": "pointerMove", "duration": 0, **place}]
        actions += [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")]
        kind = {"pointerType": by}
        self._act({"type": "pointer", "id": by, "parameters": kind, "actions": actions})

    def press(self, key, seconds=0):
        """Press a key, and release it some time later."""
        pause = {"type": "pause", "duration": round(1000 * seconds)}
        down, up = ({"type": kind, "value": KEYS.get(key, key)} for kind in ("keyDown", "keyUp"))
        self._act({"type": "key", "id": "keys", "actions": [down, pause, up]})

    def download_to(self, folder):
        """Where files go that the page lets the browser save."""
        self._command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def accessible(self, *roles):
        """(Role, name) of what assistive technology sees of these roles.

        Chrome 150 leaves the space before a hidden part of a label, which nobody hears.
        """
        nodes = self._command("Accessibility.getFullAXTree")["nodes"]
        seen = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
        return [(node["role"]["value"], node["name"]["value"].strip()) for node in seen]

    def covered(self):
        """The controls that are behind something once the focus, going back, is on them."""
        return self.run(
            """[...document.querySelectorAll('main :is(button, input, select)')].filter(
              (one) => !one.disabled && one.tabIndex >= 0 && one.checkVisibility()
            ).reverse().filter((one) => {
              one.focus();
              const { x, y, width, height } = one.getBoundingClientRect();
              return !one.contains(document.elementFromPoint(x + width / 2, y + height / 2));
            }).map((one) => one.id || one.textContent)"""
        )

    def messages(self):
        """The console's messages since the last call."""
        return [line["message"] for line in self._call("POST", "/se/log", {"type": "browser"})]

    def _act(self, source):
        self._call("POST", "/actions", {"actions": [source]})

    def _command(self, name, **parameters):
        """Run one of Chrome's own commands, beyond WebDriver."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def _wait_for_driver(self):
        until = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError):
                if self._call("GET", "/status")["ready"]:
                    return
            assert time.monotonic() < until, "chromedriver does not answer"
            time.sleep(0.05)

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]
