"""The disk engine's control socket: answers requests of the harness while nbdkit serves the guests."""

import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from raidproof.core.errors import RigError
from raidproof.disk.engine import Engine, clear_disk_faults, corrupt, set_disk_fault, swap
from raidproof.disk.messages import MessageError, build, decode, encode

VERBS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        operation.__name__: operation
        for operation in (
            *(
                Engine.fence,
                Engine.freeze,
                Engine.resolve,
                Engine.power_on,
                Engine.set_mode,
                Engine.set_timing,
                Engine.reset,
            ),
            *(Engine.use, Engine.counters, Engine.describe, Engine.save, Engine.show),
            *(Engine.start_log, Engine.stop_log, Engine.mark),
            *(set_disk_fault, clear_disk_faults, corrupt, swap),
        )
    }
)
"""The operations that the harness may request, by name.

The type hints of an operation define the arguments of its request.
"""


class ControlServer:
    """Listens on a unix socket and executes requests: one thread for each connection, one request for each line."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(path))
        self._listener.listen()

    def start(self) -> None:
        """Serve the socket in a background thread until the process ends."""
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def answer(self, line: bytes) -> dict[str, object]:
        """Execute the request in a line; return the answer, see `raidproof.disk.messages`."""
        try:
            return {"result": self._execute(decode(line))}
        except RigError as error:
            return {"refused": str(error)}
        except Exception as error:  # noqa: BLE001  the harness must receive every error
            return {"refused": f"the disk engine failed: {error!r}"}

    def _execute(self, request: dict[str, Any]) -> object:
        function = VERBS.get(verb := request.pop("verb", ""))
        if function is None:
            raise MessageError(f"the disk engine has no operation {verb!r}")
        hints = get_type_hints(function)
        if strange := request.keys() - hints.keys():
            raise MessageError(f"the operation {verb!r} has no argument {', '.join(sorted(strange))}")
        return function(self._engine, **{name: build(hints[name], value) for name, value in request.items()})

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), name="control", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                try:
                    connection.sendall(encode(self.answer(line)))
                except OSError:
                    return  # the harness has closed the connection
