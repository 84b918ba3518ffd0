"""A web server for the results directory, on the loopback address only."""

import json
import mimetypes
import os
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urlsplit

from raidproof.core.errors import RaidproofError, RequestError
from raidproof.core.log import logger
from raidproof.record.results.entry import RunEntry
from raidproof.record.results.index import Index
from raidproof.record.results.names import COMPARISON, RECORD
from raidproof.report.results.results import live, render_results

ADDRESS = "127.0.0.1"
NAMES = frozenset({"127.0.0.1", "localhost"})
"""Names in the header Host with which a browser of this host reaches the server.

Another name means that a foreign web site has its name resolve to the loopback address (DNS rebinding)."""
MOST_RUNS = 200
"""Limit of the runs on the first page."""
PIECE = 1 << 20
"""Bytes of a file that are read at a time."""
TEXT = frozenset({".log", ".jsonl", ".toml", ".tasks"})
"""Ends of the names of files that a browser shows as text, although the host's list of types may not have them."""
HEADERS = {
    "Cache-Control": "no-store",
    # The pages have their scripts inside. They load nothing from other hosts.
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ResultsServer(ThreadingHTTPServer):
    """Serves the files of the runs in a results directory, a list of the runs, and the progress of running runs."""

    daemon_threads = True

    def __init__(self, results: Path, port: int = 0) -> None:
        """Open the port; 0: any free port.

        Raises:
            RequestError: the directory does not exist, or the port cannot be opened.
        """
        if not results.is_dir():
            raise RequestError(f"{results} is no directory", remedy="give the directory of stored runs with --results")
        self.results = results.resolve()
        self._index = Lock()
        try:
            super().__init__((ADDRESS, port), ResultsHandler)
        except OSError as error:
            raise RequestError(
                f"port {port} of {ADDRESS} cannot be opened: {error.strerror}", remedy="give another port, or --port 0"
            ) from error

    @property
    def url(self) -> str:
        """The address of the first page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  of the base class
        """Log the error of a request; that a browser has closed its connection is none."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            logger.exception("a request failed")

    def runs(self) -> tuple[list[RunEntry], int]:
        """Return the newest runs, and the number of all runs."""
        with self._index, Index.open(self.results) as index:
            return index.runs(limit=MOST_RUNS), index.count()

    def find(self, path: str) -> Path | None:
        """Return the regular file in the directory of a run that the path of a request names; None if there is none.

        A hidden file, a path that leads out of the run's directory, and a link that does so have no file.
        """
        parts = [unquote(part) for part in path.split("/")[1:]]
        if len(parts) < 2 or any(not part or part.startswith(".") or set(part) & {"/", "\0"} for part in parts):
            return None
        run = self.results / parts[0]
        if run.is_symlink() or not any((run / name).is_file() for name in (RECORD, COMPARISON)):
            return None
        try:
            found = run.joinpath(*parts[1:]).resolve(strict=True)
        except (OSError, ValueError):
            return None
        return found if found.is_relative_to(run) and found.is_file() else None


class ResultsHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: ResultsServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a page or a file."""
        self._answer()

    def do_HEAD(self) -> None:
        """Send the headers of a page or a file."""
        self._answer()

    def _answer(self) -> None:
        try:
            self._respond()
        except RaidproofError as error:
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    def _respond(self) -> None:
        name, _, port = self.headers.get("Host", "").partition(":")
        if name not in NAMES or port not in {"", str(self.server.server_port)}:
            self._send_error(HTTPStatus.MISDIRECTED_REQUEST, f"this server is {self.server.url}")
            return
        path = urlsplit(self.path).path
        if path == "/":
            runs, total = self.server.runs()
            self._send(render_results(self.server.results, runs, total).encode(), "text/html; charset=utf-8")
        elif path == "/live.json":
            runs, _ = self.server.runs()
            self._send(json.dumps(live(self.server.results, runs)).encode(), "application/json")
        elif path == "/favicon.ico":
            # A browser requests this file for each page, and reports a missing one as an error.
            self._send(b"", "image/x-icon", HTTPStatus.NO_CONTENT)
        elif (file := self.server.find(path)) is not None:
            self._send_file(file)
        else:
            self._send_error(HTTPStatus.NOT_FOUND, "no run has this file")

    def _send_file(self, file: Path) -> None:
        try:
            opened = file.open("rb")
        except OSError:
            self._send_error(HTTPStatus.NOT_FOUND, "the file cannot be read")
            return
        with opened:
            size = os.fstat(opened.fileno()).st_size
            self._head(HTTPStatus.OK, _type(file), size)
            if self.command == "GET":
                # A log may grow meanwhile: it is sent up to the announced size.
                while size and (data := opened.read(min(size, PIECE))):
                    self.wfile.write(data)
                    size -= len(data)

    def _send_error(self, status: HTTPStatus, text: str) -> None:
        self._send(f"{status.value} {status.phrase}: {text}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._head(status, kind, len(content))
        if self.command == "GET":
            self.wfile.write(content)

    def _head(self, status: HTTPStatus, kind: str, length: int) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(length), **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in http.server
        """Log a request at level debug."""
        logger.debug(format, *args)


def _type(file: Path) -> str:
    if file.suffix in TEXT:
        return "text/plain; charset=utf-8"
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
