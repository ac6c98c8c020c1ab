"""A headless Chromium through the WebDriver protocol, JSON over HTTP: no package needed."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

AVAILABLE = shutil.which("chromedriver") is not None and shutil.which("chromium") is not None


class Browser:
    """Use as a context manager."""

    def __init__(self, width: int = 1280, height: int = 1400) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="torch_xla_browser_")
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._url = f"http://127.0.0.1:{self._read_port()}"
        arguments = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *(f"--user-data-dir={self._profile.name}", f"--window-size={width},{height}"),
        ]
        options = {"goog:chromeOptions": {"args": arguments, "binary": shutil.which("chromium")}}
        options["goog:loggingPrefs"] = {"browser": "ALL"}
        session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self._url += f"/session/{session['sessionId']}"

    def _read_port(self) -> int:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            if "started successfully on port" in line:
                return int(line.rstrip(".\n").split()[-1])
        raise RuntimeError("chromedriver did not start")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=30)
            self._profile.cleanup()

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["value"]

    def open(self, page: Path) -> None:
        self._call("POST", "/url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments: object) -> Any:
        """The value that the body of a JavaScript function returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": arguments})

    def wait_for(self, script: str, seconds: float = 10) -> Any:
        """What the script returns, once that is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < deadline, f"still false: {script}"
            time.sleep(0.05)
        return value

    def errors(self) -> list[str]:
        """What the page logged as errors, those of the network included."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def wheel(self, x: int, y: int, delta: int) -> None:
        """Turns the wheel over a point of the window."""
        action = {"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": delta, "duration": 0}
        self._act({"type": "wheel", "id": "wheel", "actions": [action]})

    def drag(self, x: int, y: int, to_x: int) -> None:
        move = {"type": "pointerMove", "y": y, "duration": 0}
        actions = [
            {**move, "x": x},
            {"type": "pointerDown", "button": 0},
            {**move, "x": to_x},
            {"type": "pointerUp", "button": 0},
        ]
        self._act({"type": "pointer", "id": "mouse", "actions": actions})

    def hover(self, x: int, y: int) -> None:
        action = {"type": "pointerMove", "x": x, "y": y, "duration": 0}
        self._act({"type": "pointer", "id": "mouse", "actions": [action]})

    def _act(self, source: dict[str, Any]) -> None:
        self._call("POST", "/actions", {"actions": [source]})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))
