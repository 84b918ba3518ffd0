"""Real namespaces without machines: what survives the end of a process of the lab."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.lab.lab_directory import ProcessIdentity
from raidproof.namespace import Namespace, Traffic
from raidproof.run.doctor import try_namespaces, tun_check

HOME = Path(__file__).resolve().parents[2]
REFUSAL = try_namespaces(root=os.geteuid() == 0)
pytestmark = pytest.mark.skipif(REFUSAL is not None, reason=f"no namespaces here: {REFUSAL}")
needs_tap = pytest.mark.skipif(bool(tun_check().remedy), reason=f"/dev/net/tun: {tun_check().reason}")

SLOW_TO_END = """
import fcntl, os, sys, time
holder = os.fork() == 0
if holder:
    memory = bytearray(400 << 20)  # the host frees it before it closes the files
    held = open(sys.argv[1], "w")
    fcntl.lockf(held, fcntl.LOCK_EX)
    print("locked", flush=True)
time.sleep(1000)
"""
"""A program whose child locks a file and takes tens of milliseconds to end, like a helper of a UML kernel."""
OWNER = """
import sys
from pathlib import Path
from raidproof.namespace import Namespace
with Namespace(Path(sys.argv[1])) as namespace:
    child = namespace.spawn(["sleep", "1000"], output=Path(sys.argv[1]) / "out")
    if "keep" in sys.argv:
        namespace.keep()
    print(namespace.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    with Namespace(tmp_path) as made:
        yield made


def soon(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, Deadline.after(20), what)


def processes_naming(word: str) -> list[str]:
    """Return the host's process ids whose command line contains this word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_what_is_spawned_writes_to_its_file_and_ends(namespace: Namespace, tmp_path: Path) -> None:
    process = namespace.spawn(
        ["sh", "-c", "echo $WORD; pwd; exit 7"], output=tmp_path / "said", environment={"WORD": "hello"}
    )
    assert process.wait(Deadline.after(20)) == 7
    assert (tmp_path / "said").read_text() == f"hello\n{tmp_path}\n"
    with pytest.raises(RigError, match="ended with status 7: hello"):
        process.require_running()


def test_nothing_that_a_killed_program_started_holds_a_lock(namespace: Namespace, tmp_path: Path) -> None:
    locked, said = tmp_path / "disk", tmp_path / "said"
    process = namespace.spawn([sys.executable, "-c", SLOW_TO_END, str(locked)], output=said)
    soon(lambda: "locked" in said.read_text(), "the lock")
    process.kill()
    with locked.open("r+") as disk:
        fcntl.lockf(disk, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_killing_takes_what_it_started_along(namespace: Namespace, tmp_path: Path) -> None:
    word = f"{tmp_path}/marker"
    process = namespace.spawn(["sh", "-c", "sh -c 'sleep 1000' $0 & wait", word], output=tmp_path / "out")
    soon(lambda: len(processes_naming(word)) == 2, "both processes")
    process.kill()
    assert process.status == -signal.SIGKILL
    assert not processes_naming(word)


def test_closing_ends_everything(tmp_path: Path) -> None:
    word = f"{tmp_path}/marker"
    with Namespace(tmp_path) as namespace:
        # Not even a session of its own, and orphanhood, save a process.
        namespace.spawn(["setsid", "sh", "-c", "sleep 1000 & sleep 1000", word], output=tmp_path / "out")
        soon(lambda: bool(processes_naming(word)), "the process")
        keeper = ProcessIdentity.of(namespace.pid)
    assert not keeper.alive
    assert not processes_naming(word)
    with pytest.raises(RigError, match="closed"):
        namespace.spawn(["true"], output=tmp_path / "out")


def test_an_unknown_program_is_a_missing_requirement(namespace: Namespace, tmp_path: Path) -> None:
    with pytest.raises(RequirementMissing, match="host tool not found: no-such-program"):
        namespace.spawn(["no-such-program"], output=tmp_path / "out")
    assert namespace.spawn(["true"], output=tmp_path / "out").wait(Deadline.after(20)) == 0


def test_a_socket_is_on_the_labs_network_alone(namespace: Namespace) -> None:
    namespace.bridge("lab", "10.99.0.1", 24)
    with namespace.socket() as server, namespace.socket() as client, socket.socket() as outside:
        server.bind(("10.99.0.1", 22))  # as often as there are labs: each has this port for itself
        server.listen()
        client.connect(("10.99.0.1", 22))
        with pytest.raises(OSError, match="assign"):
            outside.bind(("10.99.0.1", 22))


@needs_tap
def test_a_tap_is_on_the_bridge(namespace: Namespace, tmp_path: Path) -> None:
    namespace.bridge("lab", "10.99.0.1", 24)
    namespace.tap("tap-server", "lab")
    shown = namespace.spawn(["ip", "-oneline", "link", "show", "master", "lab"], output=tmp_path / "links")
    assert shown.wait(Deadline.after(20)) == 0
    assert "tap-server" in (tmp_path / "links").read_text()
    assert "tap-server" not in {name for _, name in socket.if_nameindex()}


GUEST = """
import fcntl, os, struct, sys, time
tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH", sys.argv[1].encode(), 0x1002))  # TUNSETIFF, IFF_TAP | IFF_NO_PI
while True:
    os.write(tap, b"\\xff" * 6 + b"\\x02\\0\\0\\0\\0\\7" + b"\\x88\\xb5" + bytes(46))
    try:
        while os.read(tap, 2000):
            pass
    except BlockingIOError:
        time.sleep(0.01)
"""
"""A machine's side of a tap: it broadcasts frames and receives all frames."""


@needs_tap
@pytest.mark.parametrize(("deaf", "mute"), [(True, True), (True, False), (False, True)])
def test_a_gate_shuts_one_way_or_both_and_opens_again(
    namespace: Namespace, tmp_path: Path, deaf: bool, mute: bool
) -> None:
    namespace.bridge("lab", "10.99.0.1", 24)
    namespace.tap("tap-one", "lab")
    namespace.spawn([sys.executable, "-c", GUEST, "tap-one"], output=tmp_path / "guest")

    def passes() -> tuple[bool, bool]:
        """Return whether frames reach the machine, and from the machine the bridge's own address."""
        port, bridge = namespace.traffic("tap-one"), namespace.traffic("lab")
        soon(lambda: namespace.traffic("tap-one").come > port.come + 3, "the machine to shout")
        soon(lambda: offered(port), "a frame for the machine")
        return namespace.traffic("tap-one").to > port.to, namespace.traffic("lab").come > bridge.come + 2

    def offered(before: Traffic) -> bool:
        """Make the bridge resolve the machine's address; return whether a frame passed or was stopped."""
        with namespace.socket() as one, contextlib.suppress(OSError):
            one.settimeout(0.2)
            one.connect(("10.99.0.2", 9))
        now = namespace.traffic("tap-one")
        return now.to > before.to or now.dropped > before.dropped

    soon(lambda: namespace.traffic("lab").come > 0, "the port to forward")
    assert passes() == (True, True)
    namespace.gate("tap-one", deaf=deaf, mute=mute)
    assert passes() == (not deaf, not mute)
    for _ in range(2):  # to open what is open changes nothing
        namespace.gate("tap-one", deaf=False, mute=False)
    assert passes() == (True, True)


def test_a_gate_that_cannot_be_shut(namespace: Namespace) -> None:
    with pytest.raises(RequirementMissing, match="cannot drop frames at no-such"):
        namespace.gate("no-such", deaf=True, mute=True)


def test_a_tap_that_cannot_be_made(namespace: Namespace) -> None:
    with pytest.raises(RequirementMissing, match="cannot create the network interface"):
        namespace.tap("a-name-that-is-too-long", "lab")


@pytest.fixture
def owner(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", OWNER, str(tmp_path), *getattr(request, "param", [])]
    with subprocess.Popen(arguments, cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def keeper_of(owner: subprocess.Popen[str]) -> ProcessIdentity:
    assert owner.stdout is not None
    return ProcessIdentity.of(int(owner.stdout.readline()))


def test_a_killed_owner_takes_everything_along(owner: subprocess.Popen[str]) -> None:
    keeper = keeper_of(owner)
    owner.kill()
    soon(lambda: not keeper.alive, "the end of the keeper")


@pytest.mark.parametrize("owner", [["keep"]], indirect=True)
def test_what_is_kept_outlives_its_owner_and_can_be_entered(owner: subprocess.Popen[str], tmp_path: Path) -> None:
    keeper = keeper_of(owner)
    owner.kill()
    owner.wait()
    for _ in range(2):  # the first visitor's leaving changes nothing
        visitor = Namespace(tmp_path)
        visitor.attach()
        assert visitor.pid == keeper.pid
        visitor.socket().close()
        visitor.detach()
    assert keeper.kill()
    assert not keeper.alive
    with pytest.raises(RigError, match="does not answer"):
        visitor.attach()


def test_the_reason_for_missing_namespaces_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    fake = bin_directory / "unshare"
    fake.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_directory))
    with (
        pytest.raises(RequirementMissing, match=r"cannot create the namespaces of a lab: unshare: .* not permitted"),
        Namespace(tmp_path),
    ):
        pass
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(RequirementMissing, match="host tool not found: unshare"), Namespace(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="hides a folder of the host: needs root")
def test_a_folder_of_the_host_is_hidden_from_the_lab_and_only_from_it(tmp_path: Path) -> None:
    place, own = tmp_path / "host", tmp_path / "own"
    place.mkdir()
    own.mkdir()
    lab = tmp_path / "lab"
    lab.mkdir()
    with Namespace(lab, folders={place: own}) as namespace:
        namespace.spawn(["touch", place / "made"], output=tmp_path / "out").wait(Deadline.after(20))
        namespace.spawn(["cat", "/proc/1/cmdline"], output=tmp_path / "first").wait(Deadline.after(20))
    assert [path.name for path in own.iterdir()] == ["made"]
    assert list(place.iterdir()) == []
    assert b"raidproof.namespace.keeper" in (tmp_path / "first").read_bytes()


def test_a_lab_does_not_hide_its_own_directory(tmp_path: Path) -> None:
    with (
        pytest.raises(RequestError, match="its own directory must be elsewhere"),
        Namespace(tmp_path, folders={tmp_path.parent: tmp_path}),
    ):
        pass


def test_what_a_daemon_started_is_ended(namespace: Namespace, tmp_path: Path) -> None:
    started = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {started}.new; mv {started}.new {started}"
    namespace.spawn(["setsid", "--fork", "sh", "-c", script], output=tmp_path / "out")
    soon(started.exists, "the daemon")
    pid = int(started.read_text())
    namespace.end(pid)

    def gone() -> bool:
        try:
            namespace.end(pid)
        except RigError as error:
            return "No such process" in str(error)
        return False

    # It is there until its parent, the keeper, has asked after it.
    soon(gone, "its end")
