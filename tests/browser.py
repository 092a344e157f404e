"""A page in a real browser, through the DevTools protocol: what loaded, what it fetched, what it complained of."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--disable-quic",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)  # fmt: skip
START_S, LOAD_S = 30, 30


def program() -> str | None:
    """Chromium on the PATH; None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """A headless browser with one page. Use it in a `with` statement: its process ends there."""

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory()
        command = [program(), *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._socket = websocket.create_connection(self._page_url(), timeout=LOAD_S)
        self._ids, self.events = itertools.count(1), []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(10)
        self._profile.cleanup()

    def _page_url(self) -> str:
        """Address of the page's socket: the browser writes its port to a file, and lists its pages there."""
        import httpx

        port_file = Path(self._profile.name) / "DevToolsActivePort"
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            if port_file.exists() and (lines := port_file.read_text().split()):
                pages = httpx.get(f"http://127.0.0.1:{lines[0]}/json", trust_env=False).json()
                if urls := [p["webSocketDebuggerUrl"] for p in pages if p["type"] == "page"]:
                    return urls[0]
            time.sleep(0.05)
        raise TimeoutError("the browser did not start")

    def call(self, method: str, **params: object) -> dict:
        """One command; events that come meanwhile are kept."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                return message["result"]
            self.events.append(message)

    def open(self, url: str, width: int = 1280, dark: bool = False) -> float:
        """Load `url` at `width` CSS pixels; returns the seconds to its load event as the page itself counts them."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.events.append(json.loads(self._socket.recv()))
        return self.run("performance.getEntriesByType('navigation')[0].loadEventStart / 1000")

    def run(self, script: str) -> object:
        """The value of a JavaScript expression in the page; a promise is waited for."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return done["result"].get("value")

    def complaints(self) -> list[str]:
        """Console errors, exceptions and failed loads since the page was opened."""
        kinds = ("Runtime.exceptionThrown", "Network.loadingFailed")
        found = [json.dumps(e["params"]) for e in self.events if e["method"] in kinds]
        found += [e["params"]["entry"]["text"] for e in self.events if e["method"] == "Log.entryAdded"]
        calls = [e["params"] for e in self.events if e["method"] == "Runtime.consoleAPICalled"]
        return found + [json.dumps(c["args"]) for c in calls if c["type"] in ("error", "warning", "assert")]

    def fetched(self) -> list[str]:
        """Addresses that the page asked for since it was opened, itself and data: left out."""
        urls = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls[1:] if not url.startswith("data:")]
