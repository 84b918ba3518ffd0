"""Command lines of the daemons, and the real daemons serving NBD."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.client import EngineClient
from raidproof.disk.daemon import nbdkit_command, storage_daemon_command
from raidproof.disk.messages import Disks, MemberSpec, save_disks
from raidproof.disk.replay import replay
from raidproof.disk.writelog import WriteLog

SIZE = 64 << 20
DEADLINE_S = 20.0


def test_nbdkit_runs_in_the_foreground_and_finds_the_package() -> None:
    command = nbdkit_command(
        socket=Path("/l/nbd"), config=Path("/l/disks"), control=Path("/l/ctl"), log=Path("/l/log")
    )
    assert command[0] == "env"
    folder = next(word for word in command if word.startswith("PYTHONPATH=")).removeprefix("PYTHONPATH=")
    assert (Path(folder) / "raidproof" / "disk" / "engine.py").is_file()
    for word in (
        "--foreground",
        "--exit-with-parent",
        "--unix=/l/nbd",
        "config=/l/disks",
        "control=/l/ctl",
        "log=/l/log",
    ):
        assert word in command


def test_one_storage_daemon_serves_all_members_in_their_order() -> None:
    command = storage_daemon_command(nbd_socket=Path("/l/n,b"), exports={"d1": Path("/l/v1"), "d0": Path("/l/v0")})
    assert command[3:5] == ["qemu-storage-daemon", "--blockdev"]
    assert [word for word in command if "export=" in word] == [
        "driver=nbd,node-name=member0,server.type=unix,server.path=/l/n,,b,export=d1,discard=unmap",
        "driver=nbd,node-name=member1,server.type=unix,server.path=/l/n,,b,export=d0,discard=unmap",
    ]
    assert command[-1] == (
        "type=vhost-user-blk,id=export1,node-name=member1,addr.type=unix,addr.path=/l/v0,"
        "writable=on,logical-block-size=512,num-queues=1"
    )


def test_impossible_command_lines_are_refused() -> None:
    long = Path("/" + "x" * 107)
    with pytest.raises(RequestError, match="has 108 bytes, the limit is 107"):
        nbdkit_command(socket=long, config=Path("c"), control=Path("d"))
    with pytest.raises(RequestError, match="shorter path"):
        storage_daemon_command(nbd_socket=Path("n"), exports={"d0": long})
    with pytest.raises(RequestError, match="at least one member"):
        storage_daemon_command(nbd_socket=Path("n"), exports={})


def python_plugin() -> bool:
    if not shutil.which("nbdkit"):
        return False
    command = ["nbdkit", "python", "--dump-plugin"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_nbdkit = pytest.mark.skipif(
    not (python_plugin() and shutil.which("qemu-io")),
    reason="needs nbdkit with its Python plugin and qemu-io (packages nbdkit, nbdkit-plugin-python, qemu-utils)",
)

Lab = tuple[Path, EngineClient, Callable[..., str]]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Serve two real disks; yields the folder, the client and a caller of qemu-io."""
    save_disks(tmp_path / "disks", Disks((MemberSpec("d0", SIZE), MemberSpec("d1", SIZE, CacheMode.LYING))))
    command = nbdkit_command(
        socket=tmp_path / "nbd", config=tmp_path / "disks", control=tmp_path / "ctl", log=tmp_path / "log"
    )

    def qemu_io(serial: str, *commands: str) -> str:
        words = [word for one in commands for word in ("-c", one)]
        url = f"nbd+unix:///{serial}?socket={tmp_path / 'nbd'}"
        command = ["qemu-io", "-f", "raw", "-t", "writeback", *words, url]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        return ended.stdout + ended.stderr

    process = subprocess.Popen(command)
    try:
        with EngineClient(tmp_path / "ctl", deadline_s=DEADLINE_S) as client:
            yield tmp_path, client, qemu_io
    finally:
        process.kill()
        process.wait()


@needs_nbdkit
def test_a_guest_over_nbd_and_what_a_cut_leaves(lab: Lab) -> None:
    folder, client, qemu_io = lab
    # "abort" ends qemu-io at once: without it, closing would flush.
    qemu_io("d0", "write -P 1 0 64k", "flush", "write -P 2 64k 4k", "write -f -P 3 68k 4k", "discard 0 4k", "abort")
    qemu_io("d1", "write -P 1 0 64k", "flush", "write -f -P 2 64k 4k", "abort")
    counters = client.counters()
    assert (counters["d0"].writes, counters["d0"].flushes, counters["d0"].fua, counters["d0"].discards) == (3, 1, 1, 1)
    assert (counters["d0"].pending, counters["d1"].pending, counters["d1"].lied) == (2, 2, 2)
    client.freeze()
    cut_results = {cut_result.serial: cut_result for cut_result in client.resolve(CutPolicy.DROP)}
    assert (cut_results["d0"].dropped, cut_results["d0"].broken_promises) == (2, 0)
    assert (cut_results["d1"].dropped, cut_results["d1"].broken_promises) == (2, 2)
    client.power_on()
    said = qemu_io("d0", "read -P 1 0 64k", "read -P 0 64k 4k", "read -P 3 68k 4k")
    assert said.count("read ") == 3
    assert "failed" not in said
    assert "failed" not in qemu_io("d1", "read -P 0 0 1M")
    assert "failed" in qemu_io("d1", "read -P 1 0 64k"), "qemu-io must be able to say no"
    client.image("d0", folder / "image")
    client.log_stop()
    members = replay(WriteLog(folder / "log"))
    platter = members["d0"].image()
    assert (folder / "image").read_bytes() == bytes(platter.view(0, platter.size))


@needs_nbdkit
def test_a_request_at_a_frozen_disk_hangs_and_fails_after_the_resolve(lab: Lab) -> None:
    folder, client, _ = lab
    client.freeze()
    command = ["qemu-io", "-f", "raw", "-c", "write 0 4k", f"nbd+unix:///d0?socket={folder / 'nbd'}"]
    guest = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(lambda: client.describe().connections, Deadline.after(DEADLINE_S), "the guest to connect")
        assert guest.poll() is None
        client.resolve(CutPolicy.KEEP)
        said, _ = guest.communicate(timeout=DEADLINE_S)
    finally:
        guest.kill()
        guest.wait()
    assert "write failed" in said
    assert client.counters()["d0"].writes == 0


@needs_nbdkit
def test_exports_are_named_and_an_unknown_one_is_refused(lab: Lab) -> None:
    _, _, qemu_io = lab
    assert "wrote 512/512" in qemu_io("d1", "write 512 512")
    assert "can't open" in qemu_io("d7", "read 0 4k")


@needs_nbdkit
@pytest.mark.skipif(not shutil.which("qemu-storage-daemon"), reason="needs qemu-storage-daemon (qemu-system-common)")
def test_the_storage_daemon_makes_one_socket_a_member(lab: Lab) -> None:
    folder, client, _ = lab
    exports = {serial: folder / f"{serial}.vhost" for serial in ("d0", "d1")}
    process = subprocess.Popen(storage_daemon_command(nbd_socket=folder / "nbd", exports=exports))
    try:
        wait_until(
            lambda: all(path.exists() for path in exports.values()), Deadline.after(DEADLINE_S), "the vhost sockets"
        )
        assert client.describe().connections == 2
    finally:
        process.kill()
        process.wait()


@needs_nbdkit
def test_a_bad_parameter_ends_nbdkit_with_its_reason(tmp_path: Path) -> None:
    command = nbdkit_command(socket=tmp_path / "nbd", config=tmp_path / "missing", control=tmp_path / "ctl")
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert ended.returncode != 0
    assert "No such file" in ended.stderr
