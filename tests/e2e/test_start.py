"""How it starts, whom it lets in, and how it says no."""

from __future__ import annotations

import base64
import http.client
import json
import pathlib
import subprocess

import psycopg
import pytest
import websockets.exceptions
import websockets.sync.client
from strongback import BINARY, Server, free_ports


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the binary to its end."""
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60)


def request(
    server: Server, method: str, path: str, *, headers: dict[str, str] | None = None, body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower case) and body of any request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


def test_a_folder_in_use_is_refused(server: Server) -> None:
    http_port, ilp, pg = free_ports(count=3)
    ports = ["--http", f"127.0.0.1:{http_port}", "--ilp", f"127.0.0.1:{ilp}", "--pg", f"127.0.0.1:{pg}", "--flight", "off"]
    second = run("serve", "--data", str(server.folder / "store"), *ports)
    assert second.returncode != 0
    assert "in use" in second.stderr, second.stderr


def test_listening_beyond_loopback_needs_a_token(tmp_path: pathlib.Path) -> None:
    http_port, ilp, pg = free_ports(count=3)
    ports = ["--http", f"0.0.0.0:{http_port}", "--ilp", f"127.0.0.1:{ilp}", "--pg", f"127.0.0.1:{pg}", "--flight", "off"]
    refused = run("serve", "--data", str(tmp_path / "store"), *ports)
    assert refused.returncode != 0
    assert "auth_token_file" in refused.stderr and "--insecure-listen" in refused.stderr, refused.stderr


def test_an_unknown_key_is_an_error_that_names_the_right_one(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "strongback.toml"
    config.write_text('[ilp]\nlisen = "127.0.0.1:9009"\n')
    checked = run("check", "--config", str(config))
    assert checked.returncode != 0
    assert "lisen" in checked.stderr and "listen" in checked.stderr.replace("lisen", ""), checked.stderr
    config.write_text('[ilp]\nlisten = "127.0.0.1:9009"\n')
    assert run("check", "--config", str(config)).returncode == 0


def test_help_teaches(binary: str) -> None:
    for command in ("serve", "demo", "check", "import", "export", "store", "bench"):
        assert command in run("--help").stdout
        assert run(command, "--help").returncode == 0


def test_a_damaged_store_says_what_and_where(server: Server) -> None:
    assert server.write("m v=1i 1760000000000000000") == (204, None)
    assert server.stop() == 0
    store = server.folder / "store"
    assert run("store", "verify", str(store)).returncode == 0
    assert run("store", "inspect", str(store)).returncode == 0
    for file in store.rglob("*"):
        if file.is_file():
            file.write_bytes(b"\xa5" * file.stat().st_size)
    http_port, ilp, pg = free_ports(count=3)
    ports = ["--http", f"127.0.0.1:{http_port}", "--ilp", f"127.0.0.1:{ilp}", "--pg", f"127.0.0.1:{pg}", "--flight", "off"]
    started = run("serve", "--data", str(store), *ports)
    assert started.returncode != 0
    assert str(store) in started.stderr, started.stderr


def test_probes_of_clients(server: Server) -> None:
    for method in ("GET", "HEAD"):
        status, headers, _ = request(server, method, "/ping")
        assert status == 204 and "x-influxdb-version" in headers
    status, _, body = request(server, "GET", "/health")
    assert status == 200 and json.loads(body)["status"] == "pass" and json.loads(body)["name"] == "strongback"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, _, body = request(server, "POST", "/query", headers=form, body=b"q=CREATE+DATABASE+%22any%22")
    assert (status, json.loads(body)) == (200, {"results": [{"statement_id": 0}]})
    assert request(server, "GET", "/settings")[0] == 404
    status, _, body = request(server, "GET", "/api/v4/write")
    assert status == 404 and b"http::" in body
    status, headers, body = request(server, "GET", "/no/such/page")
    assert status == 404 and "json" in headers["content-type"] and "error" in json.loads(body)


def test_the_page_is_inside(server: Server) -> None:
    status, headers, body = request(server, "GET", "/")
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert b"http://" not in body.replace(b"http://www.w3.org", b"") and b"https://" not in body


def test_metrics(server: Server) -> None:
    assert server.write("m v=1i") == (204, None)
    status, _, body = request(server, "GET", "/metrics")
    assert status == 200
    samples = [line for line in body.decode().splitlines() if line and not line.startswith("#")]
    assert any("received" in line or "stored" in line for line in samples)
    assert all(line.split()[0].startswith("strongback_") for line in samples), samples


def test_foreign_pages_are_kept_out(server: Server) -> None:
    assert request(server, "GET", "/api/health", headers={"Host": "evil.example"})[0] in (400, 403, 421)
    origin = {"Origin": "http://evil.example"}
    assert request(server, "POST", "/api/v2/write", headers=origin, body=b"m v=1i")[0] == 403
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        websockets.sync.client.connect(
            f"ws://127.0.0.1:{server.http_port}/api/live", origin="http://evil.example"  # type: ignore[arg-type]
        )
    assert refused.value.response.status_code == 403
    assert server.rows_of("m") == 0


def test_write_errors_as_clients_read_them(server: Server) -> None:
    status, answer = server.write("m v=1i\nm v=\nm v=2i")
    assert status == 400
    assert (answer["code"], answer["line"], answer["accepted"], answer["rejected"]) == ("invalid", 2, 2, 1)
    assert answer["message"] == answer["error"] and answer["message"].startswith("partial write: ")
    status, answer = server.write("nonsense")
    assert status == 400 and answer["message"].startswith("unable to parse: ")
    assert server.write("m v=1i 1", path="/api/v2/write?precision=fortnight")[0] == 400
    assert server.write(b"m t=\"\xff\xfe\" 1")[0] == 400
    assert server.write("m v=9223372036854775808i")[0] == 400
    for precision, factor in {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}.items():
        path = f"/api/v2/write?precision={precision}"
        assert server.write(f"p_{precision} v=1i {1_760_000_000_000_000_000 // factor}", path=path) == (204, None)
        assert server.sql(f"select time_ns from p_{precision}") == [(1_760_000_000_000_000_000,)]


@pytest.fixture
def token_file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "token"
    path.write_text("open-sesame-and-more\n")
    path.chmod(0o600)
    return path


def test_a_token_is_asked_of_everyone(tmp_path: pathlib.Path, token_file: pathlib.Path) -> None:
    server = Server(folder=tmp_path, config=f'auth_token_file = "{token_file}"\n')
    basic = base64.b64encode(b"any:open-sesame-and-more").decode()
    server.start(headers={"Authorization": "Bearer open-sesame-and-more"})
    try:
        assert request(server, "GET", "/api/channels")[0] == 401
        assert request(server, "POST", "/api/v2/write", body=b"m v=1i")[0] == 401
        assert request(server, "GET", "/api/channels", headers={"Authorization": "Bearer wrong"})[0] == 401
        for way in ("Bearer open-sesame-and-more", "Token open-sesame-and-more", f"Basic {basic}"):
            assert request(server, "GET", "/api/channels", headers={"Authorization": way})[0] == 200, way
        address = {"host": "127.0.0.1", "port": server.pg_port, "user": "any", "dbname": "strongback"}
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(**address, password="wrong")
        with psycopg.connect(**address, password="open-sesame-and-more") as connection:
            assert connection.execute("select 1").fetchone() == (1,)
    finally:
        assert server.stop() == 0

