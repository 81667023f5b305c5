"""The viewer in a browser on this machine: `python -m aotviz open FILE`.

The server listens on the loopback interface. It serves one page, under a path with a random token, and two scripts that
the page may need later (the editor and graphviz). It refuses everything else. The page is the one that `to_html`
writes, except that it fetches these two scripts after it has first drawn. A request's Host header must also name this
machine, so that a website whose own name resolves to 127.0.0.1 (DNS rebinding) gets nothing.
"""

from __future__ import annotations

import hmac
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aotviz.explain import answers
from aotviz.recording.holders import Recorded
from aotviz.widgets import static_files
from aotviz.widgets.html import to_served_html

LOOPBACK = "127.0.0.1"
SCRIPTS = ("editor.js", "graphviz.js")


class Viewer:
    """A server for one recording. `url` opens it; `serve` answers until `close` is called, from another thread.

    Raises FrontEndMissing, and OSError if the port is taken. Port 0 means any free port.
    """

    def __init__(self, recording: Recorded, port: int = 0) -> None:
        token = secrets.token_urlsafe(24)
        scripts = {f"/{token}/{name}": static_files.read(f"{name}.gz") for name in SCRIPTS}
        page = to_served_html(answers.for_page(recording)).encode()

        class Answer(_Answer):
            def do_GET(self) -> None:
                self.answer(f"/{token}/", page, scripts)

        self._server = ThreadingHTTPServer((LOOPBACK, port), Answer)
        self._server.daemon_threads = True
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/{token}/"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Answer(BaseHTTPRequestHandler):
    server: ThreadingHTTPServer
    server_version = "aotviz"
    sys_version = ""

    def answer(self, path: str, page: bytes, scripts: dict[str, bytes]) -> None:
        """Send the page if it was requested (it is at `path`), or one of the gzipped scripts, by path."""
        host = self.headers.get("Host", "")
        port = self.server.server_port
        if host not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.FORBIDDEN, "this server answers only requests from its own machine")
            return
        asked = self.path.encode()
        script = next((zipped for other, zipped in scripts.items() if hmac.compare_digest(asked, other.encode())), None)
        if script is None and not hmac.compare_digest(asked, path.encode()):
            self.send_error(
                HTTPStatus.NOT_FOUND, "this address does not exist: open the one that `aotviz open` printed"
            )
            return
        self.send_response(HTTPStatus.OK)
        body = page if script is None else script
        self.send_header("Content-Type", f"text/{'html' if script is None else 'javascript'}; charset=utf-8")
        if script is not None:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Log nothing: the terminal should show only the address."""
