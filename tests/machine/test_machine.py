"""The logic of a machine, with a fake power switch and a fake connection."""

import re
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import DeadlineExceeded, RigError
from raidproof.core.topology import MachineSpec, Role
from raidproof.core.waiting import Deadline
from raidproof.disk.cache import CutPolicy
from raidproof.machine.machine import Cut, Machine

SPEC = MachineSpec(name="server", role=Role.SERVER, address=IPv4Interface("10.77.0.10/24"))
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Computer:
    """A fake switch and connection of a machine with scripted console output of each boot."""

    def __init__(self, *boots: tuple[str, str]) -> None:
        self.boots = list(boots)
        self.said: tuple[str, str] | None = None
        self.dead = False
        self.answers: dict[str, Completed] = {}
        self.asked: list[tuple[str, ...]] = []
        self.inputs: list[bytes] = []
        self.files: dict[str, bytes] = {}
        self.events: list[str] = []

    # Power
    poweroff = ("/sbin/raidproof-poweroff",)
    raid6 = True
    consoles = (Path("/logs/server.console.1.log"), Path("/logs/server.console.2.log"))

    def on(self) -> None:
        self.events.append("on")
        self.said = self.boots.pop(0)

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        self.events.append(f"cut {policy} {seed}")
        return Cut(17, policy, seed)

    def wait_off(self, deadline: Deadline) -> None:
        self.events.append("off")

    def require_on(self) -> None:
        if self.dead:
            raise RigError("server: its kernel ended")

    # Transport
    def connect(self, deadline: Deadline, still_possible: Callable[[], None]) -> None:
        still_possible()

    def start(self, argv: Sequence[str], deadline: Deadline) -> None:
        self.asked.append(tuple(argv))

    def run(self, argv: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        self.asked.append(tuple(argv))
        self.inputs.append(stdin)
        if BOOT_ID in argv:
            assert self.said is not None
            boot_id, ready = self.said
            return Completed(tuple(argv), 0 if ready else 1, f"{boot_id}\n{ready}\n", "", "server")
        return self.answers.get(argv[0], Completed(tuple(argv), 0, "", "", "server"))

    def read(self, paths: Sequence[str], deadline: Deadline) -> list[bytes | str]:
        return [self.files.get(path, "No such file or directory") for path in paths]

    def write(self, files: Mapping[str, bytes], deadline: Deadline) -> dict[str, str]:
        refused = {path: "Read-only file system" for path in files if path.startswith("/sys/")}
        self.files |= {path: content for path, content in files.items() if path not in refused}
        return refused

    def resolve(self, paths: Sequence[str], deadline: Deadline) -> list[str | None]:
        return [{"/dev/link": "/dev/vda"}.get(path) for path in paths]

    def close(self) -> None:
        self.events.append("close")


def machine_on(computer: Any) -> Machine:
    return Machine(SPEC, computer, computer)


def test_a_machine_that_is_ready() -> None:
    machine = machine_on(Computer(("one", "ready")))
    machine.start()
    assert machine.boot_id == "one"
    assert (machine.name, machine.address) == ("server", "10.77.0.10")


def test_an_error_during_the_boot_is_reported() -> None:
    machine = machine_on(Computer(("one", "disk disk2 (virtio-uml.2) did not appear")))
    with pytest.raises(RigError, match=r"server: start-up failed: disk disk2 .* appear; see .*console\.2\.log"):
        machine.start()


def test_a_start_up_that_never_finishes() -> None:
    machine = machine_on(Computer(("one", "")))
    with pytest.raises(DeadlineExceeded, match="server to finish its start-up"):
        machine.start(deadline_s=0.05)


def test_a_machine_that_dies_on_the_way() -> None:
    computer = Computer(("one", "ready"))
    computer.dead = True
    with pytest.raises(RigError, match="its kernel ended"):
        machine_on(computer).start()


def test_after_a_crash_it_is_another_boot() -> None:
    computer = Computer(("one", "ready"), ("two", "ready"))
    machine = machine_on(computer)
    machine.start()
    assert machine.crash(CutPolicy.KEEP, 5).at_ns == 17
    assert machine.boot_id is None
    machine.start()
    assert machine.boot_id == "two"
    assert computer.events == ["on", f"cut {CutPolicy.KEEP} 5", "close", "on"]
    # Nothing ran in it on the way to the cut.
    assert all(BOOT_ID in argv for argv in computer.asked)


def test_a_machine_without_raid6_reboots_once_for_it() -> None:
    computer = Computer(("one", "ready"), ("two", "ready"))
    computer.raid6 = False
    machine = machine_on(computer)
    machine.start()
    machine.require_raid6()
    assert computer.raid6
    assert machine.boot_id == "two"
    machine.require_raid6()
    assert computer.events == ["on", "off", "close", "on"]


def test_a_crash_that_was_none_is_found_out() -> None:
    machine = machine_on(Computer(("one", "ready"), ("one", "ready")))
    machine.start()
    machine.crash()
    with pytest.raises(RigError, match="boot_id did not change"):
        machine.start()


def test_a_shutdown_waits_for_the_end() -> None:
    computer = Computer(("one", "ready"))
    machine = machine_on(computer)
    machine.start()
    machine.shutdown()
    assert computer.events == ["on", "off", "close"]
    assert machine.boot_id is None


def test_success_and_failure_are_what_was_expected() -> None:
    computer = Computer()
    computer.answers = {"false": Completed(("false", "a b"), 3, "", "no way\n", "server")}
    machine = machine_on(computer)
    assert machine.fail(["false", "a b"]).status == 3
    with pytest.raises(CommandFailed, match=r"server: status 3 from: false 'a b'\nno way"):
        machine.succeed(["false", "a b"])
    with pytest.raises(RigError, match="succeeded, but must fail: true"):
        machine.fail(["true"])


def test_a_commands_input_is_passed_on() -> None:
    computer = Computer()
    machine_on(computer).run(["cat"], stdin="é")
    machine_on(computer).run(["cat"], stdin=b"\xff")
    assert computer.inputs == ["é".encode(), b"\xff"]


def test_files_are_put_and_got() -> None:
    machine = machine_on(Computer())
    machine.put("text\n", "/etc/file")
    machine.put(b"", "/etc/empty")
    assert machine.get("/etc/file") == "text\n"
    assert machine.read_files(["/etc/file", "/etc/empty", "/etc/none", "/etc/file"]) == {"/etc/file": "text"}
    with pytest.raises(CommandFailed, match="server: status 1 from: cat /etc/none\n/etc/none: No such file"):
        machine.get("/etc/none")


def test_a_file_that_is_refused_is_named() -> None:
    machine = machine_on(Computer())
    assert machine.put_all({"/sys/a": "1", "/etc/b": "2"}) == {"/sys/a": "Read-only file system"}
    assert machine.get("/etc/b") == "2"
    with pytest.raises(CommandFailed, match="server: status 1 from: tee /sys/a\n/sys/a: Read-only file system"):
        machine.put("1", "/sys/a")


def written(computer: Computer, machine: Machine, programs: dict[str, bytes]) -> set[str]:
    """Return the paths of the files that `Machine.install` writes."""
    computer.files = {}
    machine.install(programs)
    return set(computer.files)


def test_a_program_is_written_once_in_each_boot() -> None:
    computer = Computer(("one", "ready"), ("two", "ready"))
    machine = machine_on(computer)
    machine.start()
    programs = {"/run/a.py": b"a", "/run/b.py": b"b"}
    assert written(computer, machine, programs) == {*programs}
    assert written(computer, machine, programs) == set()
    assert written(computer, machine, {**programs, "/run/b.py": b"changed"}) == {"/run/b.py"}
    machine.crash()
    machine.start()
    assert written(computer, machine, programs) == {*programs}


def test_a_program_that_something_else_replaced_is_written_again() -> None:
    computer = Computer()
    machine = machine_on(computer)
    assert written(computer, machine, {"/run/a.py": b"a"}) == {"/run/a.py"}
    machine.put("defective", "/run/a.py")
    assert written(computer, machine, {"/run/a.py": b"a"}) == {"/run/a.py"}


def test_a_program_that_cannot_be_written_is_not_taken_for_installed() -> None:
    machine = machine_on(Computer())
    for _ in range(2):
        with pytest.raises(CommandFailed, match="/sys/a"):
            machine.install({"/sys/a.py": b"a"})


def test_links_are_resolved() -> None:
    machine = machine_on(Computer())
    assert machine.resolve(["/dev/link"]) == ["/dev/vda"]
    assert (machine.exists("/dev/link"), machine.exists("/dev/none")) == (True, False)
    with pytest.raises(CommandFailed, match="realpath /dev/none"):
        machine.resolve(["/dev/link", "/dev/none"])


def test_what_is_done_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    machine = machine_on(Computer())
    machine.run(["echo", "a b"])
    machine.put_all({"/sys/a": "1\n", "/etc/b": bytes(100)})
    machine.read_files(["/etc/b"])
    machine.exists("/dev/link")
    said = [re.sub(r"\d\.\d+ s", "N s", record.message) for record in caplog.records]
    assert said == [
        "server: N s, status 0: echo 'a b'",
        r"server: N s: cannot write '1\n' to /sys/a: Read-only file system",
        "server: N s: wrote 100 bytes to /etc/b",
        "server: N s: read /etc/b",
        "server: N s: resolved /dev/link",
    ]
