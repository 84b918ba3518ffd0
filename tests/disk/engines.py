"""Requests to the engine with two disks that the tests of disks share (`conftest.engine`)."""

import threading
from collections.abc import Callable

from raidproof.disk.connection import Connection

SIZE = 1 << 20
"""Size of each disk in bytes."""
DEADLINE_S = 20.0


def read(port: Connection, offset: int = 0, length: int = 4096) -> bytes:
    buffer = bytearray(length)
    port.read(memoryview(buffer), offset)
    return bytes(buffer)


class Caller(threading.Thread):
    """Executes a request in a separate thread and stores the result."""

    def __init__(self, request: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._request = request
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._request()
        except OSError as error:
            self.error = error

    def finish(self) -> BaseException | None:
        self.join(DEADLINE_S)
        assert not self.is_alive(), "the request still hangs"
        return self.error
