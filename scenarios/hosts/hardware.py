"""The machines of a lab in the role of existing hardware: reached only by SSH, with a power switch."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from raidproof.disk.cache import CutPolicy
from raidproof.machine.machine import Machine
from raidproof.provider.namespace_lab import NamespaceLab

CLIENT = """\
import socket, sys
with socket.socket(socket.AF_UNIX) as outlet:
    outlet.connect(sys.argv[1])
    outlet.sendall(sys.argv[2].encode())
    sys.exit(outlet.recv(16) != b"done")
"""


class Outlet:
    """A power switch for one machine and its disks, like a PDU: it accepts ``on`` and ``off`` on a Unix socket."""

    def __init__(self, machine: Machine, path: Path) -> None:
        self._machine = machine
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._switch(connection.recv(16).decode())
                connection.sendall(b"done")

    def _switch(self, word: str) -> None:
        power = self._machine.power
        if word == "off" and self._on:
            power.cut(CutPolicy.DROP, 0)
            self._on = False
        elif word == "on" and not self._on:
            power.on()
            self._on = True

    _on = True

    def close(self) -> None:
        """Close the socket; the thread that serves it then ends."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Hardware:
    """A lab as existing hardware for a second raidproof: a home folder with SSH configuration, and an inventory."""

    def __init__(self, lab: NamespaceLab, home: Path) -> None:
        self.lab = lab
        self.home = home
        self.inventory = home / "inventory.toml"
        (home / ".ssh").mkdir()
        key = home / ".ssh" / "key"
        key.touch(mode=0o600)
        key.write_text(lab.keys.user.private)
        machines = lab.machines.values()
        hosts = [f"Host {one.name}\n HostName {one.address}\n User root\n IdentityFile {key}\n" for one in machines]
        (home / ".ssh" / "config").write_text("".join(hosts))
        known = [f"{one.address} {lab.keys.host.public}" for one in machines]
        (home / ".ssh" / "known_hosts").write_text("".join(known))
        self.inventory.write_text(self._inventory())

    def _inventory(self) -> str:
        outlet = [sys.executable, "-c", CLIENT, str(self.home / "outlet")]
        tables = ['[server]\nname = "server"\nhost = "server"\n']
        tables += [f'[[client]]\nname = "{one.name}"\nhost = "{one.name}"\n' for one in self.lab.clients]
        tables += [f'[[disk]]\nid = "/dev/disk/by-id/virtio-{serial}"\n' for serial in self.lab.serials]
        off, on = (json.dumps([*outlet, word]) for word in ("off", "on"))
        tables.append(f'[power.server]\nkind = "command"\noff = {off}\non = {on}\n')
        return "\n".join(tables)

    @contextmanager
    def powered(self) -> Iterator[None]:
        """Serve the power switch of the server while the body runs."""
        outlet = Outlet(self.lab.server, self.home / "outlet")
        try:
            yield
        finally:
            outlet.close()

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command that runs raidproof in the network namespace of the machines."""
        return self._there([sys.executable, "-m", "raidproof", *words])

    def pytest(self, scenarios: Path, results: Path) -> list[str]:
        """Return the command that runs scenarios on the machines, in their network namespace."""
        options = [f"--inventory={self.inventory}", f"--results={results}", "-p", "no:cacheprovider"]
        return self._there([sys.executable, "-m", "pytest", str(scenarios), *options])

    def _there(self, command: Sequence[str]) -> list[str]:
        # TMPDIR too: the files of a killed run are removed with the home folder, and `gc` finds no other files.
        folders = {"HOME": self.home, "XDG_STATE_HOME": self.home / "state", "TMPDIR": self.home}
        environment = [*(f"{name}={folder}" for name, folder in folders.items()), "COLUMNS=200"]
        keeper = ["nsenter", f"--target={self.lab.namespace.pid}", "--net", "--"]
        return ["env", *environment, *keeper, *command]

    def raidproof(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a raidproof command in the network namespace of the machines, and return the ended process."""
        return subprocess.run(self.command(words), capture_output=True, text=True, check=False, timeout=600)

    def adopt(self) -> None:
        """Confirm by `raidproof hosts adopt` that the disks may be overwritten."""
        shown = self.raidproof("hosts", "adopt", str(self.inventory)).stdout
        fingerprint = next(line for line in shown.splitlines() if line.startswith("fingerprint")).split()[1]
        adopted = self.raidproof("hosts", "adopt", str(self.inventory), "--yes", fingerprint)
        assert adopted.returncode == 0, adopted.stderr
