"""The engine's server for the control socket: answers the harness while nbdkit serves the guests."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raidproof.core.errors import RigError
from raidproof.disk.engine import Engine, clear_disk_faults, corrupt, set_disk_fault, swap
from raidproof.disk.messages import (
    ClearDiskFaults,
    Corrupt,
    CountersReply,
    Describe,
    Done,
    Freeze,
    GetCounters,
    GetUse,
    MarkLog,
    Message,
    PowerOn,
    Refused,
    Reply,
    Reset,
    Resolve,
    Resolved,
    SaveImage,
    SetDiskFault,
    SetMode,
    SetTiming,
    Show,
    StartLog,
    StopLog,
    Swap,
    decode,
    encode,
)


class ControlServer:
    """Listens on a unix socket, with one thread per connection and one request per line."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self._handlers: dict[type[Message], Callable[[Any], Reply]] = {
            Freeze: lambda _: Done(engine.freeze()),
            Resolve: lambda m: Resolved(engine.resolve(m.policy, m.seed)),
            PowerOn: lambda _: Done(engine.power_on()),
            SetMode: lambda m: self._done(lambda: engine.set_mode(m.serials, m.mode)),
            SetTiming: lambda m: self._done(lambda: engine.set_timing(m.on)),
            GetUse: lambda _: engine.use(),
            GetCounters: lambda _: CountersReply(engine.counters()),
            Describe: lambda _: engine.describe(),
            StartLog: lambda m: self._done(lambda: engine.start_log(Path(m.path), data=m.data)),
            StopLog: lambda _: engine.stop_log(),
            MarkLog: lambda m: Done(engine.mark(m.text)),
            Reset: lambda m: self._done(lambda: engine.reset(m.old)),
            SaveImage: lambda m: self._done(lambda: engine.save(m.serial, Path(m.path), durable=m.durable)),
            Show: lambda m: self._done(lambda: engine.show(Path(m.path), keep=m.keep)),
            SetDiskFault: lambda m: self._done(lambda: set_disk_fault(engine, m.serial, m.disk_fault)),
            ClearDiskFaults: lambda m: self._done(lambda: clear_disk_faults(engine, m.serials)),
            Corrupt: lambda m: self._done(lambda: corrupt(engine, m.serial, m.offset, m.length, m.seed)),
            Swap: lambda m: self._done(lambda: swap(engine, m.one, m.other)),
        }
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(path))
        self._listener.listen()

    def start(self) -> None:
        """Serve in the background until the process ends."""
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def answer(self, line: bytes) -> Reply:
        """Execute one request."""
        try:
            request = decode(line)
            handler = self._handlers.get(type(request))
            if handler is None:
                return Refused(f"not a request: {type(request).__name__}")
            return handler(request)
        except RigError as error:
            return Refused(str(error))
        except Exception as error:  # noqa: BLE001  the harness must receive any error
            return Refused(f"the disk engine failed: {error!r}")

    def _done(self, action: Callable[[], None]) -> Done:
        action()
        return Done(self._engine.clock())

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
                    return  # the harness no longer waits
