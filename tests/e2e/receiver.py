"""A receiver of alarms over HTTP or HTTPS that behaves as a test says."""

from __future__ import annotations

import http.server
import json
import pathlib
import ssl
import threading
from collections.abc import Callable
from typing import Any

TLS = pathlib.Path(__file__).parent.parent / "data" / "tls"

Answer = Callable[[http.server.BaseHTTPRequestHandler, dict[str, Any]], None]


def status(handler: http.server.BaseHTTPRequestHandler, code: int, body: bytes = b"", **headers: str) -> None:
    """Answers with a code."""
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def ok(handler: http.server.BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
    """Takes it."""
    status(handler, 204)


class Receiver:
    """Keeps what it is posted: `tried` all of it, `taken` what was answered with 2xx, each with its headers."""

    def __init__(self, *, answer: Answer = ok, tls: bool = False, port: int = 0) -> None:
        self.answer = answer
        self.tried: list[dict[str, Any]] = []
        self.taken: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def send_response(self, code: int, message: str | None = None) -> None:
                if 200 <= code < 300:
                    receiver.taken.append(self.body)
                super().send_response(code, message)

            def do_POST(self) -> None:
                self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.paths.append(self.path)
                receiver.tried.append(self.body)
                try:
                    receiver.answer(self, self.body)
                except OSError:
                    pass  # the sender went away, as some tests want

            def do_GET(self) -> None:
                receiver.paths.append(f"GET {self.path}")
                status(self, 200)

            def log_message(self, *_arguments: Any) -> None:
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_arguments: Any) -> None:
                pass  # a handshake that the sender broke off

        self.server = Quiet(("127.0.0.1", port), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "receiver.pem", TLS / "receiver.key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        scheme, host = ("https", "localhost") if tls else ("http", "127.0.0.1")
        self.url = f"{scheme}://{host}:{self.port}/alarms"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def steps(self) -> list[str]:
        """What happened, as far as it was taken."""
        return [body["step"] for body in self.taken]

    def close(self) -> None:
        """Listens no longer."""
        self.server.shutdown()
        self.server.server_close()
