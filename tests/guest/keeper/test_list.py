"""The keeper saves all files that the layers change: the constants of both must agree."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from raidproof.guest.keeper import config, kernel
from raidproof.monitor import monitor
from raidproof.provider.hosts.snapshot import DIRECTORIES, RUNTIME
from raidproof.storage import kerberos, mount
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.link import INGRESS
from raidproof.storage.server import knfsd as export
from raidproof.storage.tuning import DIRTY, QUEUE, VM
from raidproof.workload import fio, ledger_programs, shared_file

ROOMS = Path(export.__file__).parents[2]
SUITES = ROOMS.parents[1] / "scenarios" / "suites" / "raidproof_suites"
LAYERS = (
    "core/layer.py",
    "fault",
    "monitor",
    "run/crash_test.py",
    "run/repetition.py",
    "run/stack_deployer.py",
    "storage",
    "workload",
)
PLACES = ("/etc/", "/var/", "/usr/", "/opt/", "/root", "/home/", "/boot/", "/tmp", "/lib/")
UNWRITTEN = {"/root", "/usr/sbin:/usr/bin:.", "/usr/lib/udev/bcache-register"}
"""HOME, PATH, and a program."""


def sources() -> Iterator[Path]:
    yield from SUITES.rglob("*.py")
    for name in LAYERS:
        path = ROOMS / name
        yield from path.rglob("*.py") if path.is_dir() else [path]


def test_queues_are_saved() -> None:
    assert {knob.file for knob in QUEUE} <= set(config.QUEUE)


@pytest.mark.parametrize("path", [*(f"{VM}/{name}" for name in DIRTY), export._LEASES])
def test_sysctls_are_saved(path: str) -> None:
    assert any(fnmatch(path, pattern) for pattern in config.SYSCTLS)


def test_directories_are_watched() -> None:
    assert {DIRECTORY, mount.DIRECTORY} == set(DIRECTORIES)


def test_agents_and_orders_lie_where_all_is_put_back() -> None:
    paths = (monitor.AGENT, monitor.OUTPUT, ledger_programs.CONFIG, shared_file.AGENT, fio.JOB_FILE)
    assert all(path.startswith(f"{RUNTIME}/") for path in paths)


def test_the_interface_for_arrivals_is_known() -> None:
    assert config.INGRESS == INGRESS


def absolute_paths(source: str) -> set[str]:
    words = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return {word for word in words if isinstance(word, str) and word.startswith(PLACES) and "\n" not in word}


def test_no_layer_names_a_file_that_is_not_saved() -> None:
    named = {path: found for path in sources() if (found := absolute_paths(path.read_text()))}
    # No existing machine has Kerberos: tests/storage/test_kerberos.py.
    saved = (config.NFS_STATE, *config.OUR_FOLDERS, *config.CONFIGURATION, *kerberos.HIDDEN)
    strange = {
        str(path): [word for word in sorted(words - UNWRITTEN) if not word.startswith(saved)]
        for path, words in named.items()
    }
    assert {path: words for path, words in strange.items() if words} == {}


def test_a_layer_that_named_another_would_be_found() -> None:
    assert absolute_paths('run(["tee", "/etc/passwd"])') == {"/etc/passwd"}


def test_dirty_bytes_that_were_not_set_give_way_to_the_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size of 0 bytes cannot be restored: the ratio is restored instead."""
    values = {f"{VM}/dirty_bytes": "33554432", f"{VM}/dirty_ratio": "0"}

    def write(path: str, value: str, said: list[str]) -> None:
        assert value != "0"
        partner = path.replace("bytes", "ratio") if "bytes" in path else path.replace("ratio", "bytes")
        values.update({path: value, partner: "0"})

    monkeypatch.setattr(kernel, "sysctls", lambda: dict(values))
    monkeypatch.setattr(kernel, "write", write)
    found = {f"{VM}/dirty_bytes": "0", f"{VM}/dirty_ratio": "20"}
    kernel.restore_sysctls(found, [])
    assert values == found
    kernel.restore_sysctls({f"{VM}/dirty_bytes": "4194304", f"{VM}/dirty_ratio": "0"}, [])
    assert values == {f"{VM}/dirty_bytes": "4194304", f"{VM}/dirty_ratio": "0"}


def test_queueing_disciplines_of_the_owner_are_listed() -> None:
    kernels = [{"kind": "mq", "handle": "0:"}, {"kind": "fq_codel", "handle": "0:"}]
    assert kernel.own_queues({"qdiscs": kernels}) == []
    assert kernel.own_queues({"qdiscs": [{"kind": "htb", "handle": "1:"}, *kernels]}) == ["htb 1:"]
    assert kernel.own_queues(None) == []
