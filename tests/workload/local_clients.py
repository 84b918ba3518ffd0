"""Fake clients that are this host, for runs of the real ledger without machines."""

import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from raidproof.core.command import Completed
from raidproof.core.waiting import Deadline
from raidproof.workload.ledger_programs import FOLDER, command_of


def local_command(program: ModuleType, config: object) -> list[str]:
    """Return the command that runs a program of the ledger on this host; ``config``: the path of its configuration."""
    folder = str(Path(str(program.__file__)).parent)
    return [sys.executable, *(word.replace(FOLDER, folder) for word in command_of(program, str(config))[1:])]


class Client:
    """A fake client that is this host: its memory is a folder, its commands are processes."""

    def __init__(self, name: str, folder: Path, defect: str = "") -> None:
        """``defect``: Python code that the ledger's writer executes first, to make calls fail."""
        self.name = name
        self.boot_id = "same"
        self.folder = folder
        self._defect = defect
        folder.mkdir()

    def put(self, content: str | bytes, path: str) -> None:
        data = content if isinstance(content, bytes) else content.encode()
        if path == f"{FOLDER}/ledger_writer.py":
            data = self._defect.encode() + data
        (self.folder / Path(path).name).write_bytes(data)

    def install(self, programs: Mapping[str, bytes]) -> None:
        for path, content in programs.items():
            self.put(content, path)

    def start_command(self, argv: list[str]) -> "Process":
        return Process([sys.executable, *(word.replace(FOLDER, str(self.folder)) for word in argv[1:])])

    def succeed(self, argv: list[str], *, deadline_s: float = 60) -> str:
        process = self.start_command(argv)
        return process.wait(Deadline.after(deadline_s)).stdout


class Process:
    """A command of such a client."""

    def __init__(self, argv: list[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def close_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.stdin = None

    def wait(self, deadline: Deadline) -> Completed:
        said, wrong = self.process.communicate(timeout=deadline.remaining_s)
        return Completed((), self.process.returncode, said, wrong, "client")


class Host:
    """Receive the reports of the clients on this host."""

    def listen(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    def callback_address(self, listener: socket.socket, client: object) -> tuple[str, int]:
        host, port = listener.getsockname()
        return host, port
