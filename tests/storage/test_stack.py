from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import RequestError
from raidproof.core.units import KIB, MIB
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import Stack, StackSpec
from tests.guest_files import FilesByCommands

ARRAY = {"level": 5, "members": ("disk0", "disk1", "disk2", "disk3"), "chunk_size": "64KiB", "assume_clean": True}
DISKS = {f"disk{number}": 256 * MIB for number in range(6)}


def stack_spec(**asked: Any) -> StackSpec:
    return StackSpec.model_validate({"array": ARRAY, **asked})


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"filesystem": {"type": "ext5"}}, "did you mean 'ext4'"),
        ({"filesystem": {"type": "xfs", "log": "disk1"}}, "disk1 is in the array"),
        ({"filesystem": {"type": "xfs", "block_size": "8KiB"}}, "page size"),
        ({"mount": {"wsize": "256KiB"}, "export": {"max_block_size": "128KiB"}}, "server would clamp it .* 128KiB"),
        ({"mount": {"rsize": "256KiB"}, "export": {"max_block_size": "128KiB"}}, "rsize 256KiB"),
        ({"mount": {"port": 2050}}, "port 2050, .* listens on port 2049"),
        ({"export": {"port": 2050}}, "port 2049, .* listens on port 2050"),
        ({"filesystem": {"type": "ext4", "log": "disk1"}}, "disk1 is in the array"),
        ({"array": {**ARRAY, "level": 10}, "tuning": {"stripe_cache_size": 512}}, "RAID10 has no stripe_cache_size"),
        ({"link": {"delay": "1ms", "jitter": "2ms"}}, "more than the delay"),
        ({"arry": {}}, "did you mean 'array'"),
        ({"mount": {"xprtsec": "tls"}, "export": {"xprtsec": "mtls"}}, "is tls, but the export accepts only mtls"),
        ({"mount": {"xprtsec": "tls"}, "export": {"type": "ganesha"}}, "no xprtsec for a server of type ganesha"),
        ({"mount": {"sec": "krb5"}, "export": {"type": "ganesha"}}, "no sec for a server of type ganesha"),
        ({"mount": {"sec": "krb5"}, "export": {"sec": "krb5p"}}, "is krb5, but the export accepts only krb5p"),
        ({"export": {"sec": "krb5p"}}, "sec of the mounts is sys, but the export accepts only krb5p"),
        ({"array": {**ARRAY, "level": 6, "members": ("a", "b", "c")}}, "RAID6 needs at least 4 members, not 3"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        stack_spec(**asked)


def test_a_port_that_both_know_is_accepted() -> None:
    stack_spec(mount={"port": 2050}, export={"port": 2050})
    stack_spec(mount={"vers": "3"}, export={"port": 2050})


@pytest.mark.parametrize("asked", [{"xprtsec": "mtls"}, {"sec": "krb5i"}, {"xprtsec": "tls", "sec": "krb5p"}])
def test_the_export_accepts_only_the_security_of_the_mounts(asked: dict[str, Any]) -> None:
    spec = stack_spec(mount=asked)
    assert {f"{name}={value}" for name, value in asked.items()} < {*spec.export.options()}
    assert StackSpec.model_validate(spec.model_dump(mode="json")) == spec
    plain = stack_spec()
    assert not any("sec=" in option for option in plain.export.options())
    assert spec.in_plain_text == plain
    assert plain.in_plain_text is plain


def test_disks_are_asked_for_before_there_are_any() -> None:
    stack_spec().refuse_disks(DISKS)
    with pytest.raises(RequestError, match="no disk 'disk9'; did you mean 'disk"):
        stack_spec(filesystem={"type": "xfs", "log": "disk9"}).refuse_disks(DISKS)
    with pytest.raises(RequestError, match="too small for xfs"):
        stack_spec().refuse_disks(dict.fromkeys(DISKS, 128 * MIB))
    stack_spec(filesystem={"type": "ext4"}).refuse_disks(dict.fromkeys(DISKS, 128 * MIB))


@given(st.sampled_from([8, 64, 128, 1024]), st.sampled_from([4, 64, 128, 132, 1024]))
def test_no_transfer_is_larger_than_the_server_takes(most_kib: int, asked_kib: int) -> None:
    try:
        spec = StackSpec.model_validate(
            {
                "array": ARRAY,
                "export": ExportSpec(max_block_size=most_kib * KIB),
                "mount": MountSpec(wsize=asked_kib * KIB),
            }
        )
    except RequestError:
        assert asked_kib > most_kib
    else:
        assert spec.mount.wsize is not None
        assert spec.mount.wsize <= spec.export.max_block_size


def test_a_record_of_a_request_reads_back() -> None:
    spec = stack_spec(filesystem={"type": "ext4", "data": "journal"}, mount={"vers": 4.1})
    assert StackSpec.model_validate_json(spec.model_dump_json()) == spec


class Silent(FilesByCommands):
    """A fake machine on which every command succeeds without output, or fails if a test requests it."""

    def __init__(self, name: str, address: str, ran: list[tuple[str, str]], failing: frozenset[str] = frozenset()):
        self.name = name
        self.address = address
        self.ran = ran
        self.failing = failing

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append((self.name, " ".join(argv[:2])))
        return Completed(tuple(argv), int(argv[0] in self.failing), "", "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        completed = self.run(argv)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout


MakeStack = Callable[..., tuple[Stack, list[tuple[str, str]]]]


@pytest.fixture
def make_stack() -> MakeStack:
    def make(failing: frozenset[str] = frozenset(), **asked: Any) -> tuple[Stack, list[tuple[str, str]]]:
        ran: list[tuple[str, str]] = []
        clients = [Silent(f"client{number}", f"10.77.0.2{number}", ran, failing) for number in (1, 2)]
        return Stack(stack_spec(**asked), Silent("server", "10.77.0.10", ran, failing), clients), ran

    return make


def test_the_order_is_reversed(make_stack: MakeStack) -> None:
    stack, ran = make_stack()
    stack.deactivate()
    assert sorted(ran[:2]) == [("client1", "umount /mnt/raidproof"), ("client2", "umount /mnt/raidproof")]
    assert [command for _, command in ran[2:]] == [
        "exportfs -u",
        "rpc.nfsd 0",
        "exportfs -f",
        "pkill --exact",
        "pkill --exact",
        "umount /srv/raidproof",
        "mdadm --stop",
    ]


def test_every_step_of_the_removal_is_tried_and_every_failure_reported(make_stack: MakeStack) -> None:
    stack, ran = make_stack(frozenset({"umount", "rpc.nfsd", "mdadm"}))
    with pytest.raises(ExceptionGroup) as caught:
        stack.deactivate()
    assert len(ran) == 9
    clients, export, filesystem, array = caught.value.exceptions
    assert isinstance(clients, ExceptionGroup)
    assert [len(group.exceptions) for group in (clients, export) if isinstance(group, ExceptionGroup)] == [2, 1]
    assert isinstance(filesystem, CommandFailed)
    assert isinstance(array, CommandFailed)


def test_knobs_and_links_cost_nothing_where_none_was_asked(make_stack: MakeStack) -> None:
    stack, _ = make_stack()
    assert stack.links == {}
    assert stack.tuning.activate() is None
    stack, _ = make_stack(server_link={"rate": "1Gbit"})
    assert list(stack.links) == ["server"]
    stack, ran = make_stack(link={"rate": "1Gbit"}, server_link={})
    assert list(stack.links) == ["client1", "client2"]
    stack.deactivate()
    assert {command for machine, command in ran if machine == "client1"} == {
        *("umount /mnt/raidproof", "tc -force", "ip -force")
    }


def test_steps_are_named_for_the_clock(make_stack: MakeStack) -> None:
    stack, _ = make_stack()
    assert [step.name for step in stack.server_steps()] == ["assemble", "mount", "export"]
    assert [step.name for step in stack.client_steps()] == ["client1 mount", "client2 mount"]


@pytest.mark.parametrize(
    ("fsid", "vers", "source"),
    [
        (None, "4.2", "10.77.0.10:/srv/raidproof"),
        (7, "4.2", "10.77.0.10:/srv/raidproof"),
        (0, "4.2", "10.77.0.10:/"),
        (0, "3", "10.77.0.10:/srv/raidproof"),
    ],
)
def test_the_root_of_the_name_space(make_stack: MakeStack, fsid: int | None, vers: str, source: str) -> None:
    stack, _ = make_stack(export={"fsid": fsid}, mount={"vers": vers})
    assert stack.mounts["client1"].source == source


def test_caveats_are_collected(make_stack: MakeStack) -> None:
    stack, _ = make_stack(export={"grace_s": 10})
    assert [caveat.split()[0] for caveat in stack.caveats()] == ["grace", "the"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"volume": {"type": "linear"}}, "volume = linear is not brought online by another server"),
        ({"array": {**ARRAY, "type": "lvm"}}, "raid = lvm is not brought online by another server"),
        ({"export": {"type": "ganesha"}}, "a server of type ganesha has no server scope"),
        ({"mount": {"vers": "3"}}, "locks of NFSv3"),
        ({"mount": {"xprtsec": "tls"}}, "the floating address has no certificate for TLS"),
        ({"mount": {"sec": "krb5p"}}, "the floating address has no principal of Kerberos"),
    ],
)
def test_a_pair_that_cannot_work_is_refused(asked: dict[str, Any], reason: str) -> None:
    stack_spec(**asked)
    with pytest.raises(RequestError, match=f"pair: {reason}"):
        stack_spec(pair={}, **asked)


def test_a_pair_needs_two_servers() -> None:
    stack_spec().refuse_servers(1)
    stack_spec(pair={}).refuse_servers(2)
    with pytest.raises(RequestError, match="pair: the lab has one server"):
        stack_spec(pair={}).refuse_servers(1)


def test_clients_mount_the_floating_address_which_goes_first_and_moves(make_stack: MakeStack) -> None:
    stack, ran = make_stack(frozenset({"pgrep"}), pair={}, server_link={"rate": "1Gbit"})
    assert stack.mounts["client1"].source == "10.77.0.9:/srv/raidproof"
    stack.deactivate_export()
    assert ran[0] == ("server", "ip address")
    ran.clear()
    stack.array.expected_deviation = stack.array.expected_deviation.plus(absent=frozenset({"disk1"}))
    array = stack.array
    stack.hand_over(Silent("server2", "10.77.0.11", ran))
    assert ran == [], "no command runs"
    assert list(stack.links) == ["server2"]
    assert stack.array is not array
    assert (stack.array.spec, stack.array.expected_deviation) == (array.spec, array.expected_deviation)
    assert stack.mounts["client1"].source == "10.77.0.9:/srv/raidproof"
    stack.array.deactivate()
    stack.filesystem.deactivate()
    assert ran == [("server2", "mdadm --stop"), ("server2", "umount /srv/raidproof")]


def test_a_released_server_has_no_layer_online_and_no_client_is_touched(make_stack: MakeStack) -> None:
    stack, ran = make_stack(frozenset({"pgrep"}), pair={}, server_link={"rate": "1Gbit"})
    stack.release()
    assert {name for name, _ in ran} == {"server"}
    commands = [command for _, command in ran]
    order = ["ip address", "exportfs -u", "rpc.nfsd 0", "umount /srv/raidproof", "mdadm --stop"]
    assert [one for one in commands if one in order] == order
    assert commands[commands.index("mdadm --stop") + 1].startswith(("ip ", "tc "))


def test_a_release_ends_at_the_first_layer_that_stays_in_use(make_stack: MakeStack) -> None:
    stack, ran = make_stack(frozenset({"pgrep", "umount"}), pair={})
    with pytest.raises(CommandFailed):
        stack.release()
    assert ("server", "mdadm --stop") not in ran


@pytest.mark.parametrize("shared", [True, False])
def test_the_records_and_the_scope_are_those_of_the_pair(make_stack: MakeStack, shared: bool) -> None:
    stack, _ = make_stack(pair={"shared_records": shared, "same_scope": shared})
    for server in ("server", "server2"):
        assert stack.export.client_records == ("/srv/raidproof/.nfsdcld" if shared else "/var/lib/nfs")
        assert stack.export.scope == ("raidproof-pair" if shared else None)
        assert server
        stack.hand_over(Silent("server2", "10.77.0.11", []))
    alone, _ = make_stack()
    assert (alone.export.client_records, alone.export.scope, alone.address) == ("/var/lib/nfs", None, None)
