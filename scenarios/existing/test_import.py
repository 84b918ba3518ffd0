"""A server of the lab is imported like an existing one; the cells of the plan equal the stack that was built.

The texts are those of the real tools: the commands that ``raidproof import --ssh`` runs, the export table, and the
mounts of a client.
"""

import tomllib
from pathlib import Path

import pytest

from raidproof.core.units import KIB
from raidproof.existing.given import Given
from raidproof.existing.imported import imported
from raidproof.existing.remote import read_server
from raidproof.existing.reports import Text, reports_of
from raidproof.lab.lab import Lab
from raidproof.plan.cell import matrix_of
from raidproof.plan.plan import read_plan
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.run import Run
from raidproof.storage.filesystem import Ext4Spec, XfsSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import Stack, StackSpec

SPECS = {
    "raid5-xfs": stack_of("5", filesystem=XfsSpec(mount_options=("noatime",)), mount=MountSpec(wsize=128 * KIB)),
    "raid10-ext4-async": stack_of(
        "10",
        chunk_size=128 * KIB,
        filesystem=Ext4Spec(su=64 * KIB, sw=4),
        export=ExportSpec(sync=False, threads=16, lease_s=20, grace_s=10),
        mount=MountSpec(vers="4.1", sync=True),
    ),
    "raid5-xfs-options": stack_of(
        "5",
        filesystem=XfsSpec(),
        export=ExportSpec(
            root_squash=True,
            all_squash=True,
            anonuid=1025,
            anongid=100,
            subtree_check=True,
            insecure=True,
            fsid="f9a21ff2-5d4c-4b1e-9a2f-000000000001",
            export_options=("crossmnt", "insecure_locks"),
        ),
        mount=MountSpec(
            vers="3",
            recovery="soft",
            retrans=3,
            acregmin=5,
            acregmax=50,
            cto=False,
            lock=False,
            lookupcache="positive",
            softreval=True,
            other_options=("noatime", "nordirplus"),
        ),
    ),
}
NOT_COMPARED = {"rsize", "wsize", "sync", "async", "nconnect", "local_lock"}
"""Mount options that a client reports although they were not requested, or by another option; see `compared`."""
WARNED = {
    "raid5-xfs": {"write-hole"},
    "raid10-ext4-async": {"async-export", "misaligned", "mount-sync", "short-grace"},
    "raid5-xfs-options": {"soft-mount", "nolock", "subtree-check"},
}


@pytest.mark.parametrize("name", SPECS)
def test_the_plan_of_a_servers_files_requests_what_was_built(lab: Lab, current_run: Run, name: str) -> None:
    spec = SPECS[name]
    stack = Stack(spec, lab.server, lab.clients)
    stack.create()
    stack.activate()
    readings = read_server("server", lab.server.run)
    table = Given("server: /var/lib/nfs/etab", lab.server.get("/var/lib/nfs/etab"))
    (client, *_) = lab.clients
    mounts = Given(f"{client.name}: /proc/mounts", client.get("/proc/mounts"))
    keep(current_run.store.directory(f"existing/{name}"), [*readings.texts, Text("exports", table)], mounts)
    stack.deactivate()
    (found,) = imported(reports_of([*readings.texts, Text("exports", table)], [mounts]), None, several=False).exports
    assert found.plan is not None
    assert WARNED[name] <= {one.rule for one in found.warnings}
    plan = read_plan(tomllib.loads(found.plan), source="the plan")
    for cell in matrix_of(plan).cells:
        assert compared(cell.stack) == compared(spec)


def compared(spec: StackSpec) -> dict[str, object]:
    """Return the settings of a stack that its server and its client report."""
    array, filesystem, export, mount = spec.array, spec.filesystem, spec.export, spec.mount
    assert isinstance(export, ExportSpec)
    return {
        "level": array.level,
        "members": len(array.members),
        "chunk": array.chunk_size,
        "layout": array.layout_name or array.kind.default_layout,
        "policy": array.policy,
        "filesystem": filesystem.type,
        "block_size": filesystem.block_size,
        "alignment": filesystem.alignment(array.geometry),
        "noatime": "noatime" in filesystem.mount_options,
        "export": (export.sync, export.wdelay if export.sync else None, export.threads),
        "periods": (export.lease_s or 10, export.grace_s or 10),
        "export options": sorted(export.options()),
        "mount": (mount.vers, bool(mount.sync), mount.wsize or 1024 * KIB),
        "mount options": sorted(one for one in mount.options() if one.partition("=")[0] not in NOT_COMPARED),
    }


def keep(folder: Path, texts: list[Text], mounts: Given) -> None:
    """Store the texts with the run."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number:02}-{text.kind}.txt").write_text(f"{text.given.text}")
    (folder / "client-mounts.txt").write_text(mounts.text)
