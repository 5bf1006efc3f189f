"""An HTTP proxy that can lose one answer: the request reaches the server, the client never hears of it."""

from __future__ import annotations

import http.client
import http.server
import socket
import threading
from collections.abc import Callable
from types import TracebackType

# written anew for the way to the server
PER_HOP = ("transfer-encoding", "content-length", "host")


class CuttingProxy:
    """Forwards to `upstream_port`. `cut` is called once, in place of the first answer to a write.

    With `wait_for_answer` the server has answered (and so committed) when `cut` is called; without, the request
    has only been sent.
    """

    def __init__(self, *, upstream_port: int, wait_for_answer: bool, cut: Callable[[], None]) -> None:
        self.upstream_port = upstream_port
        self.wait_for_answer = wait_for_answer
        self.cut = cut
        self.cuts = 0
        self.writes = 0
        self._lock = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy._forward(self)

            do_HEAD = do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                # a client that hangs up while the server is down is part of the play
                pass

        self._server = Listener(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _forward(self, client: http.server.BaseHTTPRequestHandler) -> None:
        body = _body(client)
        write = client.command == "POST" and "write" in client.path
        with self._lock:
            self.writes += write
            cutting = write and self.cuts == 0
            self.cuts += cutting
        headers = {k: v for k, v in client.headers.items() if k.lower() not in PER_HOP}
        headers["Host"] = f"127.0.0.1:{self.upstream_port}"
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=60)
        try:
            upstream.request(client.command, client.path, body=body, headers=headers)
            if cutting and not self.wait_for_answer:
                self._cut(client)
                return
            answer = upstream.getresponse()
            content = answer.read()
            if cutting:
                self._cut(client)
                return
        except OSError:
            # the server is down: so is the way to it
            client.close_connection = True
            client.connection.shutdown(socket.SHUT_RDWR)
            return
        finally:
            upstream.close()
        client.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                client.send_header(name, value)
        if answer.status != 204:
            client.send_header("Content-Length", str(len(content)))
        client.end_headers()
        if client.command != "HEAD":
            client.wfile.write(content)

    def _cut(self, client: http.server.BaseHTTPRequestHandler) -> None:
        self.cut()
        client.close_connection = True
        client.connection.shutdown(socket.SHUT_RDWR)


def _body(client: http.server.BaseHTTPRequestHandler) -> bytes:
    if client.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return client.rfile.read(int(client.headers.get("Content-Length", 0)))
    parts = []
    while size := int(client.rfile.readline().split(b";")[0], 16):
        parts.append(client.rfile.read(size))
        client.rfile.readline()
    while client.rfile.readline().strip():
        pass
    return b"".join(parts)
