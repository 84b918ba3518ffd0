import http.client
import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.record.results.progress import end_progress, progress_of, report_progress
from raidproof.record.results.run_lock import locked
from raidproof.run.serve import ResultsServer
from tests.crash.stored import store_run

RUN = "20261123-010203-tiny"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ResultsServer]:
    results = tmp_path / "results"
    results.mkdir()
    store = store_run(results / RUN)
    (store.path / "report.html").write_text("<h1>the report</h1>")
    (store.path / "explore-cut.html").write_text("")
    (store.path / "explore-cut.crash.html").write_text("")
    (store.path / "raidproof.log").write_text("a line\n" * 300_000)
    (store.path / ".hidden").write_text("hidden")
    (store.path / "inside").symlink_to("report.html")
    (store.path / "outside").symlink_to(tmp_path / "secret.txt")
    (results / "other").mkdir()
    (results / "other" / "file.txt").write_text("no run")
    (results / "top.txt").write_text("no run")
    (results / "linked").symlink_to(store.path)
    (tmp_path / "secret.txt").write_text("secret")
    with ResultsServer(results) as served:
        # The server looks for the request to end at this interval in seconds.
        thread = Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def get(
    server: ResultsServer, path: str, host: str | None = None, method: str = "GET"
) -> tuple[int, str, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host if host is not None else f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer


def test_server_listens_on_the_loopback_address_only(server: ResultsServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_first_page_lists_the_runs_and_their_pages(server: ResultsServer) -> None:
    status, text, answer = get(server, "/")
    assert status == 200
    for name in ("report.html", "explore-cut.html", "explore-cut.crash.html"):
        assert f'href="/{RUN}/{name}"' in text
    assert "crash page: cut" in text
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")


def test_files_of_a_run_are_sent(server: ResultsServer) -> None:
    status, text, answer = get(server, f"/{RUN}/report.html?x=1")
    assert (status, text) == (200, "<h1>the report</h1>")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    status, text, answer = get(server, f"/{RUN}/raidproof.log")
    assert (status, len(text)) == (200, 7 * 300_000)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert get(server, f"/{RUN}/inside")[0] == 200
    status, text, answer = get(server, f"/{RUN}/report.html", method="HEAD")
    assert (status, text, answer.headers["Content-Length"]) == (200, "", "19")


@pytest.mark.parametrize(
    "path",
    [
        f"/{RUN}", f"/{RUN}/", f"/{RUN}/made-up/", f"/{RUN}/missing.html", "/other/file.txt", "/top.txt",
        "/index.sqlite", "/linked/report.html", f"/{RUN}/outside", f"/{RUN}/.hidden", f"/{RUN}/../top.txt",
        f"/{RUN}/../../secret.txt",
        f"/{RUN}/%2e%2e/%2e%2e/secret.txt", f"/{RUN}/..%2f..%2fsecret.txt", "/../secret.txt", "//etc/passwd",
        "/%2e%2e/secret.txt", f"/{RUN}//etc/passwd", f"/{RUN}/a%00b", f"/{RUN}/made-up/../../top.txt", "/etc/passwd",
        f"/{RUN}/" + "a" * 5000, "*", f"/{RUN}/made-up%2fhistory",
    ],
)  # fmt: skip
def test_other_paths_have_no_file(server: ResultsServer, path: str) -> None:
    status, text, _ = get(server, path)
    assert status == 404
    assert "secret" not in text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "", "localhost.evil.example"])
def test_a_foreign_name_of_the_host_is_refused(server: ResultsServer, host: str) -> None:
    for path in ("/", "/live.json", f"/{RUN}/report.html"):
        status, text, _ = get(server, path, host.format(port=server.server_port))
        assert status == 421
        assert "the report" not in text


def test_names_of_this_host_are_accepted(server: ResultsServer) -> None:
    assert get(server, "/", f"localhost:{server.server_port}")[0] == 200


def test_nothing_can_be_changed(server: ResultsServer) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert get(server, f"/{RUN}/report.html", method=method)[0] == 501


def test_progress_of_a_running_run_is_live(server: ResultsServer) -> None:
    run = server.results / RUN
    assert json.loads(get(server, "/live.json")[1]) == []
    with locked(run):
        report_progress(run, "level=5", done=3, total=12, unit="repetitions", left_s=90.0)
        found = next(one for one in json.loads(get(server, "/live.json")[1]) if one["run"] == RUN)
        assert (found["progress"]["current"], found["progress"]["done"], found["progress"]["left_s"]) == (
            "level=5",
            3,
            90,
        )
        assert f'data-run="{RUN}"' in get(server, "/")[1]
    # A killed run leaves its progress, and no lock.
    assert json.loads(get(server, "/live.json")[1]) == []
    end_progress(run)
    assert progress_of(run) is None


def test_progress_that_cannot_be_stored_ends_no_run(tmp_path: Path) -> None:
    report_progress(tmp_path / "missing", "level=5")
    assert progress_of(tmp_path / "missing") is None
    (tmp_path / "progress.json").write_text("{")
    assert progress_of(tmp_path) is None


def test_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is no directory"):
        ResultsServer(tmp_path / "missing")


def test_used_port_is_refused(server: ResultsServer) -> None:
    with pytest.raises(RequestError, match="cannot be opened"):
        ResultsServer(server.results, server.server_port)


def test_a_browser_that_goes_away_is_no_error(server: ResultsServer, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port)) as browser:
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        host = f"Host: 127.0.0.1:{server.server_port}"
        browser.sendall(f"GET /{RUN}/raidproof.log HTTP/1.1\r\n{host}\r\n\r\n".encode())
        browser.recv(100)
    assert get(server, "/")[0] == 200
    server.server_close()
    assert "Traceback" not in capfd.readouterr().err


def test_results_that_cannot_be_read_are_named(server: ResultsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: ResultsServer) -> None:
        raise RigError("the index is damaged")

    monkeypatch.setattr(ResultsServer, "runs", fails)
    status, text, _ = get(server, "/live.json")
    assert (status, text) == (500, "500 Internal Server Error: the index is damaged\n")
