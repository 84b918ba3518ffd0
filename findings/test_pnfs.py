"""nfsd offers no pNFS layouts for an export with ``no_pnfs``."""

from contextlib import suppress
from pathlib import Path

from findings.answer import Record, conclude
from raidproof.core.errors import NotEffective
from raidproof.core.topology import Role
from raidproof.provider.registry import lab_of
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.run import Run
from raidproof.storage.mount import NO_LAYOUT
from raidproof.storage.stack import Stack

IMAGE = "debian/sid"
"""User space of the server if none is requested: that of `debian/trixie` has an rpc.mountd without netlink."""
VERSION = ["dpkg-query", "--show", "--showformat=${Version}", "nfs-kernel-server"]


def test_a_client_gets_no_layout_of_an_export_without_pnfs(current_run: Run, record: Record, tmp_path: Path) -> None:
    everything = current_run.topology
    software = everything.server.software
    server = everything.server.model_copy(
        update={"software": software.model_copy(update={"image": software.image or IMAGE})}
    )
    client = next(one for one in everything.machines if one.role is Role.CLIENT)
    current_run.discard_lab()
    with lab_of(everything.model_copy(update={"machines": (server, client)}), logs=tmp_path) as lab:
        stack = Stack(stack_of(), lab.server, lab.clients)
        stack.create()
        for step in stack.server_steps():
            step.run()
        stack.export.end_grace()
        # The mount with a layout is not as requested.
        with suppress(NotEffective):
            stack.activate_client(client.name)
        pnfs = stack.mounts[client.name].state().pnfs
        measured = f"with nfs-utils {lab.server.succeed(VERSION)}, the mount of the client has pnfs={pnfs}"
        conclude(record, lab.server, measured, wrong=int(pnfs != NO_LAYOUT), seen=1, least=1)
