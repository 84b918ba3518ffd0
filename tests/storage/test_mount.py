from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.units import KIB, MIB
from raidproof.storage.mount import Mount, MountSpec, mount_command, parse_mountstats
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[1] / "data" / "nfs"
SOURCE = "10.77.0.10:/srv/raidproof"


def stats(version: str) -> str:
    return (DATA / f"mountstats-linux-6.12-vers{version}.txt").read_text()


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"vers": "4"}, "4.0, 4.1 or 4.2"),
        ({"vers": "4.3"}, "did you mean '4.2'|did you mean '4"),
        ({"vers": 2}, "NFS version: unknown value '2'"),
        ({"wsize": "2MiB"}, "clamp it to 1MiB"),
        ({"rsize": "2MiB"}, "rsize 2MiB"),
        ({"wsize": 512}, "less than 1KiB"),
        ({"wsize": "6KiB"}, "round it down to whole pages"),
        ({"wsize": "3KiB"}, "round it down"),
        ({"nconnect": 0}, "1 to 16"),
        ({"nconnect": 17}, "1 to 16"),
        ({"noac": True, "actimeo": 3}, "request only one"),
        ({"noac": True, "sync": False}, "every write synchronous"),
        ({"proto": "udp"}, "CONFIG_NFS_DISABLE_UDP_SUPPORT"),
        ({"proto": "rdma"}, "no RDMA device"),
        ({"proto": "tpc"}, "did you mean 'tcp'"),
        ({"recovery": "hart"}, "did you mean 'hard'"),
        ({"port": 70000}, "port"),
        ({"actimeo": -1}, "actimeo"),
        ({"timeo_s": 0.25}, "tenths of a second"),
        ({"wsise": "4KiB"}, "did you mean 'wsize'"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        MountSpec.model_validate(asked)


@pytest.mark.parametrize("vers", [4.2, "4.2", "v4.2", "NFSv4.2"])
def test_a_version_may_be_written_as_people_do(vers: object) -> None:
    assert MountSpec.model_validate({"vers": vers}).vers == "4.2"


def kernel_rounds(size: int) -> int:
    """The values that Linux uses for rsize and wsize over TCP (nfs_io_size, since 6.0)."""
    if size < KIB:
        return 4 * KIB
    if size >= MIB:
        return MIB
    if size < 4 * KIB:
        return 1 << (size.bit_length() - 1)
    return size // (4 * KIB) * (4 * KIB)


@given(st.one_of(st.integers(0, 3 * MIB), st.integers(0, 600).map(lambda number: number * 4 * KIB)))
def test_a_size_is_accepted_exactly_if_the_client_would_keep_it(size: int) -> None:
    try:
        MountSpec(wsize=size)
    except RequestError:
        assert kernel_rounds(size) != size
    else:
        assert kernel_rounds(size) == size


def test_command() -> None:
    spec = MountSpec(
        vers="4.1", rsize=MIB, wsize=65536, sync=True, recovery="soft", timeo_s=5, retrans=3, nconnect=4, actimeo=1
    )
    assert mount_command(spec, SOURCE) == [
        *("mount", "--mkdir", "--types", "nfs", "--options"),
        "vers=4.1,rsize=1048576,wsize=65536,proto=tcp,nconnect=4,timeo=50,retrans=3,actimeo=1,retry=0,soft,sync",
        SOURCE,
        "/mnt/raidproof",
    ]
    assert "None" not in mount_command(MountSpec(), SOURCE)[5]
    assert "noac" in MountSpec(noac=True).options()
    assert "async" in MountSpec(sync=False).options()


@pytest.mark.parametrize(("version", "nconnect"), [("3", 1), ("4.0", 2), ("4.1", 3), ("4.2", 4)])
def test_real_mounts_are_read(version: str, nconnect: int) -> None:
    state = parse_mountstats(stats(version))
    assert (state.vers, state.source, state.nconnect) == (version, SOURCE, nconnect)
    assert (state.rsize, state.wsize) == (MIB, 256 * KIB)
    assert (state.recovery, state.proto, state.timeo_s, state.retrans, state.port) == ("hard", "tcp", 60.0, 2, 2049)
    assert (state.acregmin, state.acregmax, state.acdirmin, state.acdirmax) == (3, 60, 30, 60)
    assert not state.noac
    assert state.lease_s == (None if version == "3" else 10)


@given(st.integers(0, stats("4.2").index("per-op statistics")))
def test_cut_off_output_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_mountstats(stats("4.2")[:length])


@pytest.mark.parametrize(
    ("old", "new"), [("hard,", ""), ("wsize=262144,", ""), ("rsize=1048576", "rsize=big"), ("retrans=2", "retrans=")]
)
def test_nonsense_is_refused(old: str, new: str) -> None:
    with pytest.raises(RigError, match="missing or malformed"):
        parse_mountstats(stats("4.2").replace(old, new))


def test_what_is_mounted_elsewhere_is_not_taken_for_ours() -> None:
    with pytest.raises(RigError, match="no NFS mount"):
        parse_mountstats(stats("4.2"), "/mnt")
    with pytest.raises(RigError, match="no NFS mount"):
        parse_mountstats(stats("4.2"), "/tmp")


class Client(FilesByCommands):
    """A fake machine with the mounts of the real output."""

    name = "client1"
    address = "10.77.0.21"

    def __init__(self, text: str) -> None:
        self.text = text
        self.ran: list[str] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append(argv[0])
        return Completed(tuple(argv), 0, self.text, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        return self.run(argv).stdout


def test_what_was_not_asked_is_only_recorded() -> None:
    assert Mount(MountSpec(), Client(stats("4.2")), SOURCE).activate().wsize == 256 * KIB


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"wsize": "1MiB"}, "wsize: requested 1048576, effective 262144"),
        ({"vers": "4.1"}, "vers: requested 4.1, effective 4.2"),
        ({"sync": True}, "sync: requested True, effective False"),
        ({"recovery": "soft"}, "recovery: requested soft, effective hard"),
        ({"nconnect": 8}, "nconnect: requested 8, effective 4"),
        ({"actimeo": 3}, "actimeo"),
        ({"noac": True}, "noac: requested True"),
        ({"retrans": 5}, "retrans"),
        ({"timeo_s": 5}, "timeo: requested 50, effective 600"),
        ({"port": 2050}, "port: requested 2050, effective 2049"),
    ],
)
def test_what_did_not_take_effect_is_named(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(NotEffective, match=field):
        Mount(MountSpec.model_validate(asked), Client(stats("4.2")), SOURCE).activate()


def test_the_usual_port_may_be_asked_for() -> None:
    Mount(MountSpec(port=2049), Client(stats("4.2")), SOURCE).activate()


def test_attribute_times_are_compared_as_one() -> None:
    text = stats("4.2").replace(
        "acregmin=3,acregmax=60,acdirmin=30,acdirmax=60", "acregmin=7,acregmax=7,acdirmin=7,acdirmax=7"
    )
    Mount(MountSpec(actimeo=7), Client(text), SOURCE).activate()


def test_unrequested_layouts_are_reported() -> None:
    text = stats("4.2").replace("pnfs=not configured", "pnfs=LAYOUT_BLOCK_VOLUME")
    assert parse_mountstats(text).pnfs == "LAYOUT_BLOCK_VOLUME"
