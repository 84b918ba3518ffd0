"""The directory of thousands of names belongs to the first worker that lists directories."""

import json
import os
from pathlib import Path
from typing import Any, cast

from raidproof.guest.ledger_format import MANY, MANY_NAMES
from raidproof.machine.machine import Machine
from raidproof.workload.ledger import Ledger, LedgerSpec, ServerPlace
from raidproof.workload.many_names import fill
from tests.workload.local_clients import Client, Host


def filled(tmp_path: Path, *kinds: str) -> tuple[Ledger, Path]:
    machines = [Client("client1", tmp_path / "client1"), Client("client2", tmp_path / "client2")]
    clients = cast("list[Machine]", machines)
    spec = LedgerSpec(kinds=kinds)
    root = tmp_path / "root"
    ledger = Ledger(spec, clients, Host(), str(root), tmp_path / "history", owner_of=lambda _: os.getuid())
    fill(ledger, ServerPlace(cast(Any, Client("server", tmp_path / "server")), str(root)))
    return ledger, root


def test_the_first_worker_that_lists_gets_the_directory(tmp_path: Path) -> None:
    ledger, root = filled(tmp_path, "fsync", "listing")
    worker = next(one for one in ledger.workers if one.kind == "listing")
    assert ledger.filled == worker.number == json.loads(ledger.config("client1"))["filled"]
    assert len(list((root / worker.path / MANY).iterdir())) == MANY_NAMES
    assert [one.name for one in root.iterdir()] == [worker.path]


def test_without_such_a_worker_the_server_does_nothing(tmp_path: Path) -> None:
    ledger, root = filled(tmp_path, "fsync")
    assert ledger.filled is None
    assert not root.exists()
