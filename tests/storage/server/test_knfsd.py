from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequestError, RequirementMissing, RigError
from raidproof.storage.server.knfsd import (
    DEBUGFS,
    GRACE_ENDED,
    Export,
    ExportSpec,
    export_command,
    mode_of,
    nfsd_command,
    parse_export,
    parse_tracking,
    unexport_command,
)
from tests.guest_files import FilesByCommands, parse_read

DATA = Path(__file__).parents[2] / "data" / "nfs"
NFSD = (DATA / "nfsd-linux-6.1.txt").read_text()
DMESG = (DATA / "dmesg-linux-6.1.txt").read_text()
PATH = "/srv/raidproof"
SPEC = ExportSpec(lease_s=10, grace_s=10, root_squash=False)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"lease_s": 5}, "10 to 3600"),
        ({"grace_s": 4000}, "10 to 3600"),
        ({"threads": 0}, "threads"),
        ({"fsid": -1}, "fsid"),
        ({"network": "10.77.0.10/24"}, "network"),
        ({"network": "everybody"}, "network"),
        ({"max_block_size": "2MiB"}, "8KiB to 1MiB"),
        ({"max_block_size": "12KiB"}, "power of two"),
        ({"asynch": True}, "ExportSpec has no field 'asynch'"),
        ({"subtree": True}, "did you mean 'subtree_check'"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        ExportSpec.model_validate(asked)


def test_commands() -> None:
    spec = ExportSpec(sync=False, wdelay=False, subtree_check=True, root_squash=True, fsid="0", grace_s=20, threads=4)
    assert export_command(spec) == [
        *("exportfs", "-o", "rw,async,no_wdelay,subtree_check,root_squash,fsid=0", "10.77.0.0/24:/srv/raidproof")
    ]
    assert unexport_command(spec) == ["exportfs", "-u", "10.77.0.0/24:/srv/raidproof"]
    assert nfsd_command(spec) == ["rpc.nfsd", "-G", "20", "-L", "90", "4"]
    assert nfsd_command(ExportSpec(port=2050)) == ["rpc.nfsd", "-p", "2050", "-G", "90", "-L", "90", "8"]
    assert nfsd_command(ExportSpec()) == ["rpc.nfsd", "-G", "90", "-L", "90", "8"]


@given(st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_no_option_is_left_to_a_default(sync: bool, wdelay: bool, subtree_check: bool, root_squash: bool) -> None:
    spec = ExportSpec(sync=sync, wdelay=wdelay, subtree_check=subtree_check, root_squash=root_squash)
    assert ("sync" in spec.options()) != ("async" in spec.options())
    assert ("wdelay" in spec.options()) != ("no_wdelay" in spec.options())
    assert len(spec.options()) == 5


def test_the_effect_of_a_short_grace_period_is_reported() -> None:
    assert ExportSpec().caveats() == ()
    assert ExportSpec(lease_s=90).caveats() == ()
    lease, grace = SPEC.caveats()
    assert lease.startswith("lease time is 10 s, not the default 90")
    assert grace.startswith("grace period is 10 s, not the default 90")


def test_a_real_export_is_read() -> None:
    state = parse_export(SPEC, PATH, parse_read(NFSD), DMESG)
    assert {"rw", "sync", "wdelay", "no_subtree_check", "no_root_squash"} <= set(state.options)
    assert state.kernel_options is not None
    assert "sync" in state.kernel_options
    assert (state.threads, state.lease_s, state.grace_s, state.max_block_size) == (8, 10, 10, 2**20)
    assert state.versions == ("3", "4", "4.1", "4.2")
    assert state.tracking == "nfsdcld"


def test_another_networks_export_is_not_taken_for_ours() -> None:
    with pytest.raises(RigError, match="not exported to"):
        parse_export(ExportSpec.model_validate({"network": "10.78.0.0/24"}), PATH, parse_read(NFSD), DMESG)
    with pytest.raises(RigError, match="not exported to"):
        parse_export(SPEC, "/srv", parse_read(NFSD), DMESG)


@given(st.integers(0, len(NFSD) - 1))
def test_a_cut_off_answer_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_export(SPEC, PATH, parse_read(NFSD[:length]), DMESG)


@pytest.mark.parametrize(
    "log",
    [
        "",
        "NFSD: Unable to initialize client recovery tracking! (-110)\n",
        DMESG + "NFSD: Unable to initialize client recovery tracking! (-110)\n",
    ],
)
def test_without_client_records_the_rig_is_at_fault(log: str) -> None:
    with pytest.raises(RigError, match="client records"):
        parse_tracking(log)


class NfsServer(FilesByCommands):
    """A fake machine that answers with real output, modified by a test."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, nfsd: str = NFSD, *, failing: tuple[str, ...] = ()) -> None:
        self.nfsd = nfsd
        self.failing = failing
        self.ran: list[str] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append(argv[0])
        answer = {"grep": self.nfsd, "dmesg": DMESG}.get(argv[0], "")
        return Completed(tuple(argv), int(argv[0] in self.failing), answer, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        completed = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout


def test_nfsdcld_starts_before_nfsd() -> None:
    server = NfsServer()
    Export(SPEC, server).activate()
    assert server.ran.index("nfsdcld") < server.ran.index("rpc.nfsd")
    assert server.ran.index("exportfs") < server.ran.index("rpc.nfsd")
    assert server.ran[-2:] == ["grep", "dmesg"]


class InGrace(NfsServer):
    """A fake machine whose grace period lasts until it is ended, and for one reading longer."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = ["N", "N", "Y"]

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        super().run(argv)
        assert argv[1] == GRACE_ENDED
        assert stdin in {None, "Y\n"}
        return Completed(tuple(argv), 0, self.readings.pop(0) if argv[0] == "cat" else "", "", self.name)


def test_a_grace_period_is_ended_and_its_end_is_seen() -> None:
    server = InGrace()
    Export(SPEC, server).end_grace()
    assert server.ran == ["cat", "tee", "cat", "cat"]


def test_a_grace_period_that_is_over_is_left_alone() -> None:
    server = InGrace()
    server.readings = ["Y"]
    Export(SPEC, server).end_grace()
    assert server.ran == ["cat"]


def test_a_restart_touches_only_nfsd() -> None:
    server = NfsServer()
    Export(SPEC, server).restart()
    assert server.ran == ["rpc.nfsd", "tee", "rpc.nfsd", "grep", "dmesg"]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (
            "no_root_squash,sync,wdelay,no_subtree_check,uuid",
            "no_root_squash,async,wdelay,no_subtree_check,uuid",
            "sync",
        ),
        ("threads:8", "threads:1", "threads: requested 8, effective 1"),
        ("nfsv4leasetime:10", "nfsv4leasetime:90", "lease_s: requested 10, effective 90"),
        ("leases-enable:1", "leases-enable:0", "delegations: requested True, effective False"),
        ("max_block_size:1048576", "max_block_size:131072", "max_block_size"),
        ("sync,wdelay,no_subtree_check,uuid", "sync,wdelay,uuid", "no_subtree_check"),
    ],
)
def test_what_did_not_take_effect_is_named(old: str, new: str, field: str) -> None:
    assert old in NFSD
    with pytest.raises(NotEffective, match=field):
        Export(SPEC, NfsServer(NFSD.replace(old, new))).activate()


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        ({"root_squash": True}, "root_squash"),
        ({"all_squash": True}, "all_squash"),
        ({"anonuid": 99}, "anonuid=99"),
        ({"anongid": 100}, "anongid=100"),
        ({"subtree_check": True}, "subtree_check"),
        ({"insecure": True}, "insecure"),
        ({"fsid": "7"}, "fsid=7"),
        ({"fsid": "f9a21ff2-5d4c-4b1e-9a2f-000000000001"}, "fsid=f9a21ff2"),
        ({"export_options": "mountpoint"}, "mountpoint"),
        ({"export_options": "crossmnt"}, "crossmnt"),
    ],
)
def test_a_requested_option_without_effect_is_an_error(asked: dict[str, Any], option: str) -> None:
    spec = ExportSpec.model_validate({"lease_s": 10, "grace_s": 10, "root_squash": False, **asked})
    with pytest.raises(NotEffective, match="options: requested") as caught:
        Export(spec, NfsServer()).activate()
    requested, _, effective = str(caught.value).partition("effective")
    assert option in requested
    assert f"'{option}" not in effective


class WithIoModes(NfsServer):
    """A fake machine whose nfsd has I/O modes in debugfs, from its mount on, if the kernel has debugfs."""

    def __init__(self, *, has: bool = True, refuses: str = "", ignores: str = "") -> None:
        """``refuses``, ``ignores``: the name of a file whose write fails, or has no effect."""
        super().__init__()
        self.has, self.refuses, self.ignores = has, refuses, ignores
        self.modes: dict[str, str] = {}

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        name = argv[-1].removeprefix(f"{DEBUGFS}/nfsd/")
        match argv[0]:
            case "mount" if self.has:
                self.modes = {"disable-splice-read": "0", "io_cache_read": "0", "io_cache_write": "0"}
            case "test" if argv[-1].startswith(DEBUGFS):
                return Completed(tuple(argv), int(name not in self.modes), "", "", self.name)
            case "tee" if name in self.modes:
                if name == self.refuses:
                    return Completed(tuple(argv), 1, "", "Invalid argument", self.name)
                if name != self.ignores:
                    self.modes[name] = str(stdin).strip()
                if name == "disable-splice-read":
                    self.modes["io_cache_read"] = "0"
        self.nfsd = NFSD + "".join(f"{DEBUGFS}/nfsd/{file}:{mode}\n" for file, mode in self.modes.items())
        return super().run(argv, stdin=stdin, deadline_s=deadline_s)


DIRECT = ExportSpec(lease_s=10, grace_s=10, root_squash=False, io_cache_read="dontcache", io_cache_write="direct")


def test_io_modes_are_set_read_back_and_reset() -> None:
    server = WithIoModes()
    state = Export(DIRECT, server).activate()
    assert (state.io_cache_read, state.io_cache_write) == ("dontcache", "direct")
    assert server.modes == {"disable-splice-read": "0", "io_cache_read": "1", "io_cache_write": "2"}
    Export(DIRECT, server).deactivate()
    assert set(server.modes.values()) == {"0"}


def test_without_a_request_no_io_mode_is_touched() -> None:
    server = WithIoModes()
    state = Export(SPEC, server).activate()
    assert (state.io_cache_read, state.io_cache_write) == (None, None)
    Export(SPEC, server).deactivate()
    assert "mount" not in server.ran


def test_an_io_mode_without_effect_is_named() -> None:
    with pytest.raises(NotEffective, match="io_cache_write: requested direct, effective buffered"):
        Export(DIRECT, WithIoModes(ignores="io_cache_write")).activate()


def test_a_kernel_without_io_modes_is_named_with_the_first_that_has_them() -> None:
    with pytest.raises(RequirementMissing, match=r"no I/O modes: .*/io_cache_read does not exist") as caught:
        Export(DIRECT, WithIoModes(has=False)).activate()
    assert "6.18" in str(caught.value.remedy)
    with pytest.raises(RequirementMissing, match=r"refuses direct in .*/io_cache_write: Invalid argument"):
        Export(DIRECT, WithIoModes(refuses="io_cache_write")).activate()


def test_an_io_mode_that_has_no_name_is_reported_by_its_number() -> None:
    assert [mode_of(text) for text in ("0\n", "2", "7")] == ["buffered", "direct", "7"]


def test_a_deployed_server_gets_its_io_modes_at_the_start_of_nfsd() -> None:
    unit = [line for line in DIRECT.lines(PATH, "10.0.0.0/8") if "nfs-server.service.d" in line.file]
    assert [line.text for line in unit] == [
        "ExecStartPost=/bin/sh -c 'echo 1 > /sys/kernel/debug/nfsd/io_cache_read'",
        "ExecStartPost=/bin/sh -c 'echo 2 > /sys/kernel/debug/nfsd/io_cache_write'",
    ]


def test_a_missing_no_subtree_check_means_subtree_check() -> None:
    spec = SPEC.model_copy(update={"subtree_check": True})
    with pytest.raises(NotEffective):
        Export(spec, NfsServer()).require_effective()
    Export(spec, NfsServer(NFSD.replace("no_subtree_check,", ""))).require_effective()


def test_every_server_is_stopped_even_if_one_would_not() -> None:
    server = NfsServer(failing=("rpc.nfsd", "pkill"))
    with pytest.raises(ExceptionGroup) as caught:
        Export(SPEC, server).deactivate()
    assert server.ran == ["exportfs", "rpc.nfsd", "exportfs", "pkill", "pkill"]
    assert len(caught.value.exceptions) == 3


def test_what_the_kernel_applies_now_is_read_in_full() -> None:
    assert set(SPEC.options()) <= set(Export(SPEC, NfsServer()).applied())
    turned = NFSD.replace("no_root_squash,sync,wdelay,no_subtree_check,uuid", "no_root_squash,async,wdelay,uuid")
    applied = set(Export(SPEC, NfsServer(turned)).applied())
    assert {"async", "subtree_check"} <= applied
    assert not {"sync", "no_subtree_check"} & applied


def test_what_is_not_exported_has_no_options() -> None:
    assert Export(SPEC.model_copy(update={"network": IPv4Network("10.0.0.0/24")}), NfsServer()).applied() == ()


class Tracked(NfsServer):
    """A fake machine that records whole commands, on which nfsdcld ends at the second look."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[str] = []
        self.looks = 0

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.commands.append(" ".join(argv))
        if argv[0] != "pgrep":
            return super().run(argv, stdin=stdin, deadline_s=deadline_s)
        self.looks += 1
        return Completed(tuple(argv), int(self.looks > 1), "", "", self.name)


def test_a_server_of_a_pair_has_the_scope_and_the_records_of_the_pair() -> None:
    server = Tracked()
    export = Export(SPEC, server)
    export.client_records, export.scope = "/srv/raidproof/.nfsdcld", "pair"
    export.activate()
    assert "nfsdcld --storagedir /srv/raidproof/.nfsdcld" in server.commands
    created = server.commands.index("mkdir --parents --mode=0700 /srv/raidproof/.nfsdcld")
    assert created < server.commands.index("nfsdcld --storagedir /srv/raidproof/.nfsdcld")
    assert nfsd_command(SPEC, "pair")[-3:] == ["-S", "pair", str(SPEC.threads)]
    assert " ".join(nfsd_command(SPEC, "pair")) in server.commands
    server.commands.clear()
    export.deactivate()
    assert server.commands[-2:] == ["pgrep --exact nfsdcld"] * 2, "the file system is unmounted next"
    server.commands.clear()
    export.revive()
    assert "nfsdcld --storagedir /srv/raidproof/.nfsdcld" in server.commands


def test_a_single_server_keeps_its_records_where_they_are() -> None:
    server = Tracked()
    export = Export(SPEC, server)
    export.activate()
    export.deactivate()
    assert "nfsdcld" in server.commands
    assert not any(one.startswith(("mkdir", "pgrep")) for one in server.commands)
    assert " ".join(nfsd_command(SPEC)) in server.commands
