"""Compares member disks of the disk engine with plain files behind ubd, User-mode Linux's own block device.

Two machines of one lab work alternately: the server, whose members come from the engine over vhost-user, and a client
whose additional ubd disks are files in the host's memory. CPU is the share of one core that nbdkit and the storage
daemon used meanwhile, including the start of the job. Run it as `python -m benchmarks.members`.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.figures import load, row
from raidproof.core.topology import server_and_clients
from raidproof.core.units import MIB
from raidproof.core.waiting import now_ns
from raidproof.machine.machine import Machine
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.provider.uml import SHARED_MEMORY, Uml, UmlPower

SIZE = 192 * MIB
ENGINE = [f"/dev/disk/by-id/raidproof-disk{number}" for number in range(4)]
UBD = [f"/dev/ubd{letter}" for letter in "defg"]
DAEMONS = ("nbdkit", "qemu-storage-d")
"""Beginnings of the names of the daemons' processes; psutil may return only 15 characters."""

FIO = "fio --name=job --ioengine=psync --thread --output-format=json --filename={device}"
JOBS = {
    "1 MiB sequential write, fsync at the end, MB/s": "--rw=write --bs=1M --size=128M --direct=1 --end_fsync=1",
    "4 KiB random write, IOPS": "--rw=randwrite --bs=4k --size=128M --direct=1 --time_based --runtime=3",
    "4 KiB random write, fsync each, IOPS": "--rw=randwrite --bs=4k --size=128M --fsync=1 --time_based --runtime=3",
    "4 KiB random read, IOPS": "--rw=randread --bs=4k --size=128M --direct=1 --time_based --runtime=3",
}
ARRAY = (
    "modprobe -abq raid456 xfs; mdadm --create /dev/md0 --run --level=5 --raid-devices=4 --chunk=64 --assume-clean "
    "{members}; mkfs.xfs -q -f -K /dev/md0; mkdir -p /mnt/local; mount /dev/md0 /mnt/local"
)
NO_ARRAY = "umount /mnt/local; mdadm --stop /dev/md0; mdadm --zero-superblock {members}"
ON_ARRAY = "RAID5, XFS, 1 MiB sequential write, MB/s"


def measure(machine: Machine, device: str, job: str) -> float:
    """Run a fio job; return MB/s for a sequential write, IOPS for other jobs."""
    command = [*FIO.format(device=device).split(), *job.split()]
    done = json.loads(machine.succeed(command, deadline_s=120))["jobs"][0]
    kind = done["read"] if "randread" in job else done["write"]
    return float(kind["io_bytes"] / done["job_runtime"] / 1e3 if "rw=write" in job else kind["iops"])


def measure_array(machine: Machine, members: list[str]) -> float:
    """Return the MB/s of a write with fsync to a file on an array of all members."""
    names = " ".join(members)
    machine.succeed(["sh", "-ec", ARRAY.format(members=names)])
    job = "--rw=write --bs=1M --size=256M --end_fsync=1 --fallocate=none"
    measure(machine, "/mnt/local/first", job)
    machine.succeed(["rm", "/mnt/local/first"])
    rate = measure(machine, "/mnt/local/file", job)
    machine.succeed(["sh", "-ec", NO_ARRAY.format(members=names)])
    return rate


def boot_with_files(machine: Machine, folder: Path) -> None:
    """Boot a machine again, with plain files as additional ubd disks."""
    power = machine.power
    assert isinstance(power, UmlPower)  # noqa: S101  this benchmark uses provider uml only
    files = [folder / f"member{number}" for number in range(len(UBD))]
    for file in files:
        with file.open("wb") as opened:
            opened.truncate(SIZE)
    arguments = [f"{Path(device).name}={file}" for device, file in zip(UBD, files, strict=True)]
    machine.crash()
    power.kernel = replace(power.kernel, arguments=(*power.kernel.arguments, *arguments))
    machine.start()


@contextmanager
def cpu_share(lab: NamespaceLab, into: dict[str, dict[str, list[float]]], what: str) -> Iterator[None]:
    """Measure the percentage of one CPU that each daemon uses while the body runs; append it to ``into[what]``."""
    daemons = [one for one in psutil.Process(lab.namespace.pid).children() if one.name().startswith(DAEMONS)]
    begun, before = now_ns(), [sum(one.cpu_times()[:2]) for one in daemons]
    yield
    seconds = (now_ns() - begun) / 1e9
    for one, used in zip(daemons, before, strict=True):
        share = (sum(one.cpu_times()[:2]) - used) / seconds * 100
        into.setdefault(what, {}).setdefault(f"  CPU of {one.name()}", []).append(share)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rates: dict[str, dict[str, list[float]]] = {"engine": {}, "ubd": {}}
    cpu: dict[str, dict[str, list[float]]] = {}
    print(f"before: {load()}", flush=True)
    with (
        TemporaryDirectory() as logs,
        TemporaryDirectory(dir=SHARED_MEMORY) as files,
        NamespaceLab(server_and_clients(clients=1, disk_size=SIZE), Uml(), logs=Path(logs)) as lab,
    ):
        client = lab.clients[0]
        boot_with_files(client, Path(files))
        measure(client, UBD[0], JOBS[next(iter(JOBS))])  # the first writes allocate memory, and are slower
        measure(lab.server, ENGINE[0], JOBS[next(iter(JOBS))])
        for turn in range(options.repeats):
            for what, job in JOBS.items():
                with cpu_share(lab, cpu, what):
                    rates["engine"].setdefault(what, []).append(measure(lab.server, ENGINE[0], job))
                rates["ubd"].setdefault(what, []).append(measure(client, UBD[0], job))
            with cpu_share(lab, cpu, ON_ARRAY):
                rates["engine"].setdefault(ON_ARRAY, []).append(measure_array(lab.server, ENGINE))
            rates["ubd"].setdefault(ON_ARRAY, []).append(measure_array(client, UBD))
            print(f"repetition {turn + 1} of {options.repeats}", flush=True)
    print(f"after: {load()}\n")
    for what, values in rates["engine"].items():
        ubd = rates["ubd"][what]
        print(what)
        print(row("  engine", values))
        print(row("  ubd on a file in memory", ubd))
        print(row("  engine / ubd", [a / b * 100 for a, b in zip(values, ubd, strict=True)], "%"))
        for daemon, shares in cpu[what].items():
            print(row(daemon, shares, "%"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
