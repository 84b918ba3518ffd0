"""NFS-Ganesha: its configuration, and its log as Ganesha 6.5 of Debian trixie wrote it on User-mode Linux."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequestError, RequirementMissing, RigError
from raidproof.guest import server_process
from raidproof.storage.array import MdSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server.ganesha import (
    CONFIG,
    LOG,
    PID,
    RECORDS,
    Ganesha,
    GaneshaSpec,
    configuration,
    parse_log,
    state_of,
)
from raidproof.storage.stack import StackSpec
from tests.guest_files import FilesByCommands

STARTED = (Path(__file__).parents[2] / "data" / "ganesha" / "start-6.5.txt").read_text()
"""The log of a start with the record of one client, which is in its grace period."""
NOT_IN_GRACE = STARTED.splitlines()[-1].replace("-" * 49, "NFS Server Now NOT IN GRACE") + "\n"
ATTRIBUTES = {"lease_s": 10, "max_read": 1048576, "max_write": 1048576, "versions": [0, 1, 2]}
PATH = "/srv/raidproof"
SPEC = GaneshaSpec(lease_s=10, grace_s=10, delegations=False, root_squash=False)


class Server(FilesByCommands):
    """A machine with Ganesha, whose log and attributes are made up."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, log: str = STARTED, *, installed: bool = True, runs: bool = True, **attributes: Any) -> None:
        self.log, self.installed, self.runs = log, installed, runs
        self.attributes = {**ATTRIBUTES, **attributes}
        self.ran: list[list[str]] = []
        self.written: dict[str, str] = {}

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append(list(argv))
        status, out = 0, ""
        match argv:
            case ["which", _]:
                status = 0 if self.installed else 1
            case ["pgrep", *_]:
                status = 0 if self.runs else 1
            case ["pkill", *_]:
                status, self.runs = (0 if self.runs else 1), False
            case ["ganesha.nfsd", *_]:
                self.runs = True
            case ["rm", "--recursive", *_]:
                self.log += NOT_IN_GRACE
            case ["cat", path]:
                assert path == LOG
                out = self.log
            case ["tee", path]:
                self.written[path] = str(stdin)
            case ["python3", "-", *_]:
                out = json.dumps(self.attributes)
        return Completed(tuple(argv), status, out, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        if not (completed := self.run(argv, stdin=stdin)).ok:
            raise CommandFailed(completed)
        return completed.stdout

    @property
    def programs(self) -> list[str]:
        return [argv[0] for argv in self.ran]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"sync": False}, "always sync: this server has no option async"),
        ({"lease_s": 200}, "10 to 180 s"),
        ({"grace_s": 300}, "10 to 270 s"),
        ({"fsid": 0}, "no fsid"),
        ({"threads": 1}, "threads"),
        ({"recovery_backend": "rados_ng"}, "fs_ng"),
        ({"wdelay": True}, "GaneshaSpec has no field 'wdelay'"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        GaneshaSpec.model_validate(asked)


def test_nfsv3_is_refused() -> None:
    array = MdSpec(level="5", members=("a", "b", "c"))
    with pytest.raises(RequestError, match=r"ganesha does not serve NFS version 3; valid: 4\.0, 4\.1, 4\.2"):
        StackSpec(array=array, export=SPEC, mount=MountSpec(vers="3"))


def test_the_configuration_has_every_setting() -> None:
    spec = GaneshaSpec(
        lease_s=20, grace_s=30, nfs_commit=True, recovery_backend="fs_ng", root_squash=True, port=2050, threads=4
    )
    text = configuration(spec, PATH, str(spec.network))
    for setting in (
        *("NFS_Port = 2050;", "Enable_NLM = false;", "RPC_Ioq_ThrdMax = 4;", "MaxRPCSendBufferSize = 1114112;"),
        *("Lease_Lifetime = 20;", "Grace_Period = 30;", "RecoveryBackend = fs_ng;", f"RecoveryRoot = {RECORDS};"),
        *("Path = /srv/raidproof;", "Squash = root_squash;", "NFS_Commit = true;", "MaxWrite = 1048576;"),
        *("Delegations = RW;", "CLIENT { Clients = 10.77.0.0/24; Access_Type = RW; }", "FSAL { Name = VFS; }"),
        *("Entries_HWMark = 10000;", 'destination = "/dev/kmsg"; max_level = CRIT;'),
    ):
        assert setting in text
    assert text.count("{") == text.count("}")


def test_only_nfs_commit_makes_each_write_stable() -> None:
    assert GaneshaSpec(nfs_commit=True).stable_writes
    assert not GaneshaSpec().stable_writes


def test_a_setting_that_is_not_requested_is_not_in_the_configuration() -> None:
    text = configuration(GaneshaSpec(), PATH, "10.77.0.0/24")
    assert "Lease_Lifetime" not in text
    assert "Grace_Period" not in text


def test_lines_for_users_have_nothing_of_the_test_machine() -> None:
    lines = SPEC.lines("/export", "192.0.2.0/24")
    assert {line.file for line in lines} == {"/etc/ganesha/ganesha.conf"}
    text = "\n".join(line.text for line in lines)
    assert "Clients = 192.0.2.0/24;" in text
    for word in ("Squash", "kmsg", RECORDS, "MDCACHE"):
        assert word not in text


def test_the_log_of_a_start() -> None:
    logged = parse_log(STARTED)
    assert (logged.version, logged.ready, logged.in_grace, logged.grace_s) == ("6.5", True, True, 10)
    assert (logged.path, logged.network) == (PATH, "10.77.0.0/24")
    assert logged.options == SPEC.options()
    assert not logged.rejected
    assert not parse_log(STARTED + NOT_IN_GRACE).in_grace


def test_only_the_last_start_counts() -> None:
    first_lines = "".join(STARTED.splitlines(keepends=True)[:3])
    logged = parse_log(STARTED + first_lines)
    assert (logged.ready, logged.path, logged.options) == (False, None, ())


@given(st.integers(0, len(STARTED)))
def test_no_part_of_a_log_is_taken_for_a_state(size: int) -> None:
    part = STARTED[:size]
    try:
        logged = parse_log(part)
        state = state_of(SPEC, PATH, logged, json.dumps(ATTRIBUTES))
    except RigError:
        return
    assert (state.path, state.options, state.grace_s) == (PATH, SPEC.options(), 10)


def test_a_log_without_a_start_is_an_error() -> None:
    with pytest.raises(RigError, match="no start of ganesha"):
        parse_log("".join(STARTED.splitlines(keepends=True)[1:]))


def test_options_of_the_log() -> None:
    changed = STARTED.replace("options=02202000", "options=32202400").replace("no_root_squash", "root_squash   ")
    assert parse_log(changed).options == GaneshaSpec(nfs_commit=True, root_squash=True).options()
    assert "Access_Type=RO" in parse_log(STARTED.replace(", RWrw,", ", R-r-,")).options


def test_activation_reads_the_state_back() -> None:
    server = Server()
    state = SPEC.server(server).activate()
    assert server.written[CONFIG] == configuration(SPEC, PATH, "10.77.0.0/24")
    assert (state.lease_s, state.grace_s, state.versions) == (10, 10, ("4.0", "4.1", "4.2"))
    assert (state.version, state.tracking, state.delegations) == ("6.5", "fs", False)


@pytest.mark.parametrize(
    ("server", "field"),
    [
        (Server(lease_s=60), "lease_s: requested 10, effective 60"),
        (Server(max_write=65536), "max_block_size: requested 1048576, effective 65536"),
        (Server(versions=[0]), "versions"),
        (Server(STARTED.replace("duration 10", "duration 90")), "grace_s: requested 10, effective 90"),
        (Server(STARTED.replace("options=02202000", "options=02202400")), "NFS_Commit=true"),
        (Server(STARTED.replace("path (/srv/raidproof)", "path (/srv/other)")), "/srv/other"),
        (Server(STARTED.replace("10.77.0.0/24", "10.78.0.0/24")), "10.78.0.0/24"),
    ],
)
def test_what_did_not_take_effect_is_named(server: Server, field: str) -> None:
    with pytest.raises(NotEffective, match=field):
        SPEC.server(server).activate()


def test_a_parameter_that_ganesha_did_not_accept_is_an_error() -> None:
    said = "Config File (/run/raidproof/ganesha.conf:2): Unknown parameter (Monitoring_Port)"
    line = STARTED.splitlines()[-1].replace("-" * 49, said)
    with pytest.raises(RigError, match=r"did not accept its configuration: .*Monitoring_Port"):
        SPEC.server(Server(f"{STARTED}{line}\n")).activate()


def test_a_machine_without_ganesha_lacks_a_requirement() -> None:
    with pytest.raises(RequirementMissing, match=r"server has no program ganesha\.nfsd"):
        SPEC.server(Server(installed=False)).activate()


def test_an_end_at_the_start_is_an_error() -> None:
    class Dies(Server):
        def run(self, argv: Sequence[str], **options: Any) -> Completed:
            completed = super().run(argv, **options)
            self.runs = False
            return completed

    begun = STARTED.splitlines(keepends=True)[0]
    with pytest.raises(RigError, match=r"ganesha\.nfsd ended at its start"):
        SPEC.server(Dies(begun)).activate()


def test_a_grace_period_ends_by_a_start_without_client_records() -> None:
    server = Server()
    export = SPEC.server(server)
    assert not export.grace_ended()
    export.end_grace()
    assert ["rm", "--recursive", "--force", RECORDS] in server.ran
    assert server.programs.index("pkill") < server.programs.index("rm") < server.programs.index("ganesha.nfsd")
    assert export.grace_ended()


def test_a_grace_period_that_is_over_is_left_alone() -> None:
    server = Server(STARTED + NOT_IN_GRACE)
    SPEC.server(server).end_grace()
    assert server.programs == ["cat"]


def test_states_are_served_by_a_process_of_the_agent_after_the_export_was_verified() -> None:
    server = Server(STARTED + NOT_IN_GRACE)
    service = SPEC.server(server).serve_states()
    assert service.module is server_process
    assert service.arguments["start"] == ["ganesha.nfsd", "-f", CONFIG, "-p", PID, "-L", LOG, "-F"]
    assert all(text in server.log for text in service.arguments["ready"])
    assert not all(text in STARTED for text in service.arguments["ready"]), "a grace period has to end"
    assert CONFIG in server.written
    assert not server.runs
    with pytest.raises(NotEffective):
        SPEC.server(Server(STARTED + NOT_IN_GRACE, lease_s=90)).serve_states()


def test_a_restart_ends_the_old_process_first() -> None:
    server = Server()
    SPEC.server(server).restart()
    assert server.programs[:3] == ["pkill", "pgrep", "ganesha.nfsd"]


def test_halt_and_kill_send_their_signals_and_prove_the_end() -> None:
    for outage, signal in ((Ganesha.halt, "-TERM"), (Ganesha.kill, "-KILL")):
        server = Server()
        assert "ganesha.nfsd" in outage(SPEC.server(server)).proof
        assert server.ran[0] == ["pkill", signal, "--exact", "ganesha.nfsd"]
        with pytest.raises(RigError, match="was not running"):
            outage(SPEC.server(server))


def test_a_stopped_server_exports_nothing() -> None:
    server = Server()
    export = SPEC.server(server)
    assert export.applied() == SPEC.options()
    export.deactivate()
    assert export.applied() == ()


def test_caveats_compare_with_ganeshas_defaults() -> None:
    assert GaneshaSpec(lease_s=60, grace_s=90).caveats() == ()
    (caveat,) = GaneshaSpec(lease_s=90, grace_s=90).caveats()
    assert "lease time is 90 s, not the default 60 s" in caveat
