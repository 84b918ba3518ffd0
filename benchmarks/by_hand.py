"""Compares the write rate of a client on a stack that the harness built and on the same stack built by hand.

The second stack is built with the commands of an administrator and the tools' defaults. A third one also sets nfsd's
largest transfer, whose default depends on the server's memory, to the harness's value. All three are measured in turn
in the same lab. Run it as `python -m benchmarks.by_hand`.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import load, row
from raidproof.core.topology import server_and_clients
from raidproof.core.units import MIB, format_size
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.provider.registry import lab_of
from raidproof.run.demo import demo_stack
from raidproof.storage.stack import Stack
from raidproof.workload.fio import FioSpec, fio_command, parse_fio

BAR = 0.95
"""Least accepted median of the harness's write rate / the rate of a stack built by hand."""
WRITES = 4
"""Number of measured writes, of which the fastest counts."""
FIO_DEADLINE_S = 300.0
HARNESS, DEFAULTS, SAME_TRANSFERS = "harness", "by hand, all defaults", "by hand, transfers of 1 MiB"

MEMBERS = " ".join(f"/dev/disk/by-id/raidproof-disk{number}" for number in range(4))
SERVER_UP = f"""
mdadm --create /dev/md0 --run --level=5 --raid-devices=4 --chunk=64 --assume-clean {MEMBERS}
mkfs.xfs -q -f -K /dev/md0
mkdir -p /srv/by-hand
mount /dev/md0 /srv/by-hand
sysctl -q fs.leases-enable=1
nfsdcld
exportfs -o rw,sync,no_subtree_check,no_root_squash 10.77.0.0/24:/srv/by-hand
rpc.mountd
"""
SERVER_START = "rpc.nfsd -G 90 -L 90 8"
SERVER_DOWN = f"""
exportfs -u 10.77.0.0/24:/srv/by-hand
rpc.nfsd 0
exportfs -f
pkill --exact rpc.mountd
pkill --exact nfsdcld
umount /srv/by-hand
mdadm --stop /dev/md0
mdadm --zero-superblock {MEMBERS}
"""
SET_TRANSFERS = "echo {} > /proc/fs/nfsd/max_block_size"
# nfsd chooses its default at its first start after boot; a value that was set cannot be reset to the default.
OWN_TRANSFERS = """
nfsdcld
rpc.nfsd 8
cat /proc/fs/nfsd/max_block_size
rpc.nfsd 0
pkill --exact nfsdcld
"""


def type_in(machine: Machine, lines: str) -> str:
    """Run a shell script, stop at the first command that fails, and return the output."""
    return machine.succeed(["sh", "-ec", lines], deadline_s=120)


@contextmanager
def by_harness(lab: Lab) -> Iterator[str]:
    """Build a stack with the harness, yield the client's directory on it, and remove the stack."""
    stack = Stack(demo_stack(sync=True), lab.server, lab.clients)
    stack.create()
    stack.activate()
    yield stack.mounts[lab.clients[0].name].directory
    stack.deactivate()
    stack.destroy()


@contextmanager
def by_hand(lab: Lab, transfers: int) -> Iterator[str]:
    """Build a stack by hand, yield the client's directory on it, and remove the stack; ``transfers`` in bytes."""
    type_in(lab.server, f"{SERVER_UP}{SET_TRANSFERS.format(transfers)}\n{SERVER_START}")
    for client in lab.clients:
        type_in(client, "mkdir -p /mnt/by-hand; mount -t nfs -o vers=4.2 10.77.0.10:/srv/by-hand /mnt/by-hand")
    yield "/mnt/by-hand"
    for client in lab.clients:
        type_in(client, "umount /mnt/by-hand")
    type_in(lab.server, SERVER_DOWN)


def write(client: Machine, folder: str, spec: FioSpec) -> float:
    """Return the MB/s of the fastest of `WRITES` writes, as other load of this host can only slow a write down.

    One write before these does not count: it is slower, because the disk engine allocates memory for fresh disks.
    """
    path = f"{folder}/file"
    rates = []
    for _ in range(1 + WRITES):
        rates.append(parse_fio(client.succeed(fio_command(spec, path), deadline_s=FIO_DEADLINE_S)).mb_per_s)
        client.succeed(["rm", path])
    return max(rates[1:])


def main() -> int:
    """Print the table; return status 1 if a ratio is below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="number of rounds, each with all three stacks")
    parser.add_argument("--size", type=int, default=256, help="size of a write in MiB")
    options = parser.parse_args()
    spec = FioSpec(size=options.size * MIB)
    rates: dict[str, list[float]] = {HARNESS: [], DEFAULTS: [], SAME_TRANSFERS: []}
    print(f"before: {load()}", flush=True)
    with (
        TemporaryDirectory() as logs,
        lab_of(server_and_clients(clients=2, disk_size=(options.size + 64) * MIB), logs=Path(logs)) as lab,
    ):
        own = int(type_in(lab.server, OWN_TRANSFERS))
        print(f"nfsd's default of the largest transfer on this server: {format_size(own)}")
        stacks = {
            HARNESS: lambda: by_harness(lab),
            DEFAULTS: lambda: by_hand(lab, own),
            SAME_TRANSFERS: lambda: by_hand(lab, MIB),
        }
        for turn in range(options.pairs):
            # Rotate the order, so that no stack always follows the same other stack.
            names = [*stacks][turn % 3 :] + [*stacks][: turn % 3]
            for name in names:
                lab.disks.reset()
                with stacks[name]() as folder:
                    rates[name].append(write(lab.clients[0], folder, spec))
            print(f"{turn + 1}: " + ", ".join(f"{name} {rates[name][-1]:.0f} MB/s" for name in rates), flush=True)
    print(f"after: {load()}\n")
    for name, values in rates.items():
        print(row(name, values, "MB/s"))
    medians = []
    for name in (DEFAULTS, SAME_TRANSFERS):
        ratios = [mine / theirs * 100 for mine, theirs in zip(rates[HARNESS], rates[name], strict=True)]
        medians.append(sorted(ratios)[len(ratios) // 2])
        print(row(f"harness / {name}", ratios, "%", f"bar: at least {BAR:.0%}"))
    return int(min(medians) < BAR * 100)


if __name__ == "__main__":
    sys.exit(main())
