"""The harness restores an existing machine to its state before the run, also if the process of the run is killed.

The machines of a lab serve as existing machines: the server has its own configuration and its own NFS server.
"""

import copy
import json
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.core.units import MIB
from raidproof.core.waiting import Deadline
from raidproof.guest.keeper import config
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.provider.hosts.snapshot import (
    ROOT,
    KeeperConfig,
    copy_of,
    left_as_found,
    restore_all,
    settle,
    take,
    unrestored,
)
from raidproof.pytest_plugin.fixtures import MEMBERS, stack_of
from raidproof.storage.link import INTERFACE, LinkSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import Stack, StackSpec
from raidproof.storage.tuning import TuningSpec

CONFIGURATION = {
    "/etc/exports": "/srv/own 10.77.0.0/24(ro,no_subtree_check)\n",
    "/etc/exports.d/second.exports": "# nothing yet\n",
    "/etc/mdadm/mdadm.conf": "HOMEHOST <ignore>\nARRAY /dev/md/old UUID=00000000:00000000:00000000:00000000\n",
    "/etc/fstab": "LABEL=root / ext4 defaults 0 1\n",
    "/etc/nfs.conf.d/own.conf": "[nfsd]\nthreads=3\n",
}
DEADLINE_S = 60.0
WORK_DEADLINE_S = 600.0
"""Seconds within which a run begins its work, even on machines that this host emulates without KVM."""
LOOKED = ("/etc", "/var/lib/nfs", "/run", "/srv", "/mnt", "/dev/disk")
# Folders that change without the harness: a restarted NFS server assigns new client ids, and mount and mdadm write
# state files until the next boot.
RESTLESS = ("/var/lib/nfs/nfsdcld", "/run/rpcbind", "/run/rpc_pipefs", "/run/mount", "/run/mdadm")
OF_THE_BOOT = ("/run", "/dev", "/etc/host", "/etc/ssh", "/etc/raidproof", "/etc/machine-id")
"""Beginnings of paths that each boot of a lab's machine changes; a boot of real hardware does not."""
NFSD = ("threads", "versions", "nfsv4leasetime", "nfsv4gracetime", "portlist")
VALUES = ("/proc/sys/vm/dirty_*", "/proc/sys/fs/leases-enable", *(f"/proc/fs/nfsd/{name}" for name in NFSD))


def census(machine: Machine) -> dict[str, str]:
    """Return the state of a machine (files, settings, arrays, mounts), read without the harness's own keeper."""
    said = machine.succeed(["find", *LOOKED, "-xdev", "-printf", "%p\\t%y %m %U:%G %T@ %l\\n"])
    seen = dict(line.split("\t", 1) for line in said.splitlines())
    # The time stamp of a folder is no configuration: temporary files in the folder change it.
    seen = {path: " ".join(text.split()[:3]) if text.startswith("d") else text for path, text in seen.items()}
    sums = machine.run(["find", "/etc", "/var/lib/nfs", "-xdev", "-type", "f", "-exec", "sha256sum", "{}", "+"])
    seen |= {f"content of {line[66:]}": line[:64] for line in sums.stdout.splitlines()}
    seen = {path: text for path, text in seen.items() if not any(one in path for one in RESTLESS)}
    for pattern in VALUES:
        found = machine.run(["find", str(Path(pattern).parent), "-maxdepth", "1", "-name", Path(pattern).name])
        for path in found.stdout.split():
            seen[path] = machine.get(path)
    if machine.spec.role == "server":
        seen["exports"] = machine.succeed(["exportfs", "-v"])
    seen["arrays"] = machine.run(["cat", "/proc/mdstat"]).stdout
    seen["mounts"] = machine.succeed(["cut", "--delimiter= ", "--fields=1-4", "/proc/mounts"])
    queues = json.loads(machine.succeed(["tc", "-j", "qdisc", "show"]))
    seen["queues"] = str([(one["kind"], one["dev"]) for one in queues])
    seen["interfaces"] = machine.succeed(["ls", "/sys/class/net"])
    for serial in MEMBERS if machine.spec.role == "server" else ():
        name = machine.succeed(["realpath", f"/dev/disk/by-id/raidproof-{serial}"]).strip().removeprefix("/dev/")
        seen[f"{serial} read-ahead"] = machine.get(f"/sys/block/{name}/queue/read_ahead_kb")
    return seen


def differences(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the properties of a machine that differ between two states, each with both values; None: absent."""
    keys = sorted({*before, *after})
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}


@pytest.fixture
def hardware(lab: Lab) -> Iterator[Lab]:
    """Yield a lab whose server has its own configuration and its own running NFS server."""
    server = lab.server
    saved = "/root/configuration.tar"
    server.succeed(["tar", "--create", f"--file={saved}", "/etc", "/var/lib/nfs"])
    folders = sorted({str(Path(path).parent) for path in CONFIGURATION})
    server.succeed(["mkdir", "--parents", "/srv/own", *folders])
    for path, content in CONFIGURATION.items():
        server.put(content, path)
    server.succeed(["chmod", "0640", "/etc/exports"])
    server.succeed(["chown", "7:8", "/etc/mdadm/mdadm.conf"])
    server.succeed(["touch", "--date=2019-04-05 06:07:08.123456789", *CONFIGURATION])
    server.succeed(["tee", "/proc/sys/vm/dirty_background_bytes"], stdin=f"{16 * MIB}\n")
    own_server(server)
    yield lab
    with suppress(RigError):  # after a failure the lab has ended
        for argv in (["rpc.nfsd", "0"], ["exportfs", "-ua"], ["exportfs", "-f"], ["pkill", "rpc.mountd|nfsdcld"]):
            server.run(argv)
        server.succeed(["rm", "--recursive", "/srv/own", *CONFIGURATION])
        server.succeed(["tar", "--extract", f"--file={saved}", "--directory=/"])
        # Without a sync, a later cut could leave the files empty that tar has just replaced.
        server.succeed(["sync"])


def own_server(server: Machine) -> None:
    """Start an NFS server with settings that differ from those of the harness."""
    server.succeed(["nfsdcld"])
    server.succeed(["exportfs", "-r"])
    server.succeed(["exportfs", "-o", "rw,fsid=9,no_subtree_check", "127.0.0.1:/srv/own"])  # this export is in no file
    server.succeed(["rpc.mountd"])
    server.succeed(["rpc.nfsd", "-G", "20", "-L", "30", "3"])


def spec() -> StackSpec:
    stack = stack_of(
        export=ExportSpec(sync=True, delegations=False, threads=5, grace_s=10, lease_s=10, root_squash=True)
    )
    tuning = TuningSpec(read_ahead=64 * 1024, server_dirty_bytes=32 * MIB, client_dirty_bytes=24 * MIB)
    return stack.model_copy(update={"tuning": tuning, "link": LinkSpec(rate="1Gbit", delay="100us")})


def orders_of(lab: Lab, *, stop_nfs: bool = True) -> list[tuple[Machine, KeeperConfig]]:
    disks = tuple(f"/dev/disk/by-id/raidproof-{serial}" for serial in MEMBERS)
    server = KeeperConfig("r1", "server", disks, INTERFACE, stop_nfs=stop_nfs)
    return [(lab.server, server), *((client, KeeperConfig("r1", "client", (), INTERFACE)) for client in lab.clients)]


def at_work(lab: Lab, said: Connection, folder: Path) -> None:
    """Set up the machines as a run does, start work on the clients, and wait until this process is killed."""
    # With separate SSH connections, as the parent process uses the connections of the lab.
    machines = [with_own_connection(machine) for machine in (lab.server, *lab.clients)]
    stack = Stack(spec(), machines[0], machines[1:])
    for machine, (_, orders) in zip(machines, orders_of(lab), strict=True):
        take(machine, orders, folder)
        settle(machine, orders.run)
    stack.create()
    stack.activate()
    for machine in machines[1:]:
        # The remote command continues after the connection has ended.
        argv = ["dd", "if=/dev/zero", f"of=/mnt/raidproof/{machine.name}", "bs=64K", "count=100000", "oflag=dsync"]
        machine.put("orders", "/run/raidproof/agent.json")
        machine.start_command(argv)
    said.send("at work")
    said.recv()


def with_own_connection(machine: Machine) -> Machine:
    """Return a copy of a machine object with its own SSH connection."""
    mine = copy.copy(machine)
    mine.transport = copy.copy(machine.transport)
    mine.transport._client = None
    mine.transport.connect(Deadline.after(DEADLINE_S))
    return mine


def killed_at_work(lab: Lab, folder: Path) -> None:
    """Start `at_work` in a separate process, and kill the process by SIGKILL as soon as it has work under way."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=at_work, args=(lab, theirs, folder))
    process.start()
    theirs.close()
    try:
        assert mine.poll(WORK_DEADLINE_S)
        assert mine.recv() == "at work"
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL


def look(lab: Lab) -> dict[str, dict[str, str]]:
    """Return the state of each machine of a lab, by the machine's name."""
    return {machine.name: census(machine) for machine in (lab.server, *lab.clients)}


def must_be_as_found(lab: Lab, before: dict[str, dict[str, str]]) -> None:
    """Assert that each machine has the state that it had before, and no remains of the harness."""
    after = look(lab)
    assert {name: differences(before[name], after[name]) for name in before} == {name: {} for name in before}
    for machine in (lab.server, *lab.clients):
        assert not machine.run(["test", "-e", ROOT]).ok


def test_restore_after_a_killed_harness_leaves_no_trace(hardware: Lab, tmp_path: Path) -> None:
    before = look(hardware)
    killed_at_work(hardware, tmp_path)
    machines = (hardware.server, *hardware.clients)
    assert all(unrestored(machine) == ("r1",) for machine in machines)
    assert differences(before["server"], census(hardware.server))
    with pytest.raises(RequestError, match=r"server has not been restored since run r1 \(\./raidproof hosts restore"):
        take(hardware.server, KeeperConfig("r2", "server"), tmp_path)
    assert copy_of(tmp_path, "r1", "server").exists()
    restore_all(machines, tmp_path)
    must_be_as_found(hardware, before)
    # A second restore changes nothing.
    assert restore_all(machines, tmp_path) == []
    must_be_as_found(hardware, before)


def test_restore_after_a_killed_harness_and_a_power_cut_leaves_no_trace(hardware: Lab, tmp_path: Path) -> None:
    before = look(hardware)
    killed_at_work(hardware, tmp_path)
    hardware.server.crash()
    hardware.server.start()
    restore_all((hardware.server, *hardware.clients), tmp_path)
    after = look(hardware)
    for name in before:
        left = differences(before[name], after[name])
        strange = [key for key in left if not key.removeprefix("content of ").startswith(OF_THE_BOOT)]
        assert strange == [], name


def test_the_normal_end_of_a_run_restores_the_machine(hardware: Lab, tmp_path: Path) -> None:
    before = look(hardware)
    machines = (hardware.server, *hardware.clients)
    with left_as_found(orders_of(hardware), tmp_path), ExitStack() as undo:
        stack = Stack(spec(), hardware.server, hardware.clients)
        stack.create()
        undo.callback(stack.deactivate)
        stack.activate()
        assert unrestored(hardware.server)
    must_be_as_found(hardware, before)
    assert all(not unrestored(machine) for machine in machines)
    assert not list(tmp_path.iterdir())


def test_a_running_nfs_server_is_stopped_only_if_the_inventory_allows_it(hardware: Lab, tmp_path: Path) -> None:
    before = look(hardware)
    refused = pytest.raises(RequestError, match=r"is an NFS server already .*stop_nfs = true")
    with refused, left_as_found(orders_of(hardware, stop_nfs=False), tmp_path):
        pytest.fail("the run began")
    must_be_as_found(hardware, before)


def test_layers_write_only_files_that_are_saved_before(lab: Lab) -> None:
    """Compare all files before and after a stack was used: only files that the harness saves first may change."""
    machines = (lab.server, *lab.clients)
    before = {machine.name: all_files(machine) for machine in machines}
    stack = Stack(spec(), lab.server, lab.clients)
    stack.create()
    stack.activate()
    for client in lab.clients:
        client.succeed(["dd", "if=/dev/zero", f"of=/mnt/raidproof/{client.name}", "bs=64K", "count=16", "conv=fsync"])
    stack.export.restart()
    stack.deactivate()
    listed = (*config.CONFIGURATION, config.NFS_STATE, *KeeperConfig("r", "server").directories, "/run/raidproof")
    # Also allowed to change: runtime files (mount's table, mdadm's map, sockets and locks of daemons).
    system = ("/run/mount", "/run/mdadm", "/run/rpc", "/run/lock", "/run/nfs", "/run/sm-notify", "/run/exportfs")
    for machine in machines:
        changed = differences(before[machine.name], all_files(machine))
        strange = [path for path in changed if not path.startswith((*listed, *system, "/dev/md", "/dev/vd"))]
        assert strange == [], machine.name


def all_files(machine: Machine) -> dict[str, str]:
    """Return size, time, mode and owner of each file of a machine, by path."""
    said = machine.succeed(
        ["find", "/", "/run", "/dev", "-xdev", "-not", "-type", "d", "-printf", "%p\\t%s %T@ %m %U %G\\n"]
    )
    return dict(line.split("\t", 1) for line in said.splitlines())
