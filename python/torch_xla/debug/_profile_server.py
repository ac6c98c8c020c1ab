"""Profiles on request: a server in the training process, and the client that asks it.

GET /profile?duration_ms=N&delay_ms=N answers with the files of a profile of that time, as JSON:
{"path": contents in base64}.
"""

import base64
import json
import tempfile
import threading
import time
import urllib.error
import urllib.request
import weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from torch_xla.debug._profile import Profile


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        try:
            if url.path != "/profile":
                raise ValueError(f"no such page: {url.path}")
            duration, delay = (int(query.get(name, "0")) for name in ("duration_ms", "delay_ms"))
            answer = json.dumps(_profile(duration, delay)).encode()
            status = 200
        except (RuntimeError, ValueError) as error:
            answer, status = str(error).encode(), 409
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        """Requests are not logged."""


def _profile(duration_ms: int, delay_ms: int) -> dict[str, str]:
    time.sleep(delay_ms / 1000)
    with tempfile.TemporaryDirectory() as folder:
        profile = Profile(folder)
        time.sleep(duration_ms / 1000)
        written = profile.stop()
        return {
            str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode()
            for path in written.iterdir()
        }


class ProfilerServer:
    """Runs until `close`, or until it is collected, or the process ends."""

    def __init__(self, port: int) -> None:
        try:
            server = ThreadingHTTPServer(("", port), _Handler)
        except OSError as error:
            raise RuntimeError(f"no profiler server can listen on port {port}: {error}") from error
        server.daemon_threads = True
        self.port = server.server_address[1]
        serve = server.serve_forever
        threading.Thread(target=serve, name="torch_xla-profiler", daemon=True).start()
        # At exit before threads stop, which would leave it waiting for its own.
        self.close = weakref.finalize(self, _close, server)


def _close(server: ThreadingHTTPServer) -> None:
    server.shutdown()
    server.server_close()


_running: "weakref.WeakValueDictionary[int, ProfilerServer]" = weakref.WeakValueDictionary()


def serve(port: int) -> ProfilerServer:
    """The server of this process on that port."""
    server = _running.get(port)
    if server is None or not server.close.alive:
        server = ProfilerServer(port)
        _running[server.port] = server
    return server


def request(address: str, logdir: str, duration_ms: int, delay_ms: int) -> None:
    """Asks the server at "host:port" for a profile and writes its files into `logdir`."""
    url = f"http://{address}/profile?duration_ms={duration_ms}&delay_ms={delay_ms}"
    patience = (duration_ms + delay_ms) / 1000 + 60
    try:
        with urllib.request.urlopen(url, timeout=patience) as answer:
            files = json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"the profiler server at {address}: {error.read().decode()}") from error
    except (OSError, ValueError) as error:
        raise RuntimeError(f"no profiler server answers at {address}: {error}") from error
    root = Path(logdir).resolve()
    for name, contents in files.items():
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise RuntimeError(f"the profiler server at {address} names a file outside: {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(contents))
