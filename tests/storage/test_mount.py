import re
from collections.abc import Sequence
from errno import EBUSY, EIO, ETIMEDOUT
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.units import KIB, MIB
from raidproof.storage.mount import Mount, MountSpec, mount_command, parse_mounts, parse_mountstats, why_refused
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
        ({"timeo_s": "1.44s"}, "tenths of a second"),
        ({"noac": True, "acregmax": 3}, "contradicts acregmax = 3"),
        ({"actimeo": 5, "acdirmax": 3}, "request either actimeo, or single times"),
        ({"acregmin": 61}, "acregmin = 61 s is more than acregmax = 60 s"),
        ({"acdirmax": 5}, "acdirmin = 30 s is more than acdirmax = 5 s"),
        ({"lock": False}, "nolock: NFSv4 clients ignore it"),
        ({"local_lock": "all"}, "local_lock: NFSv4 clients ignore it"),
        ({"vers": "3", "lock": False, "local_lock": "flock"}, "contradicts local_lock = flock"),
        ({"vers": "4.0", "max_connect": 2}, "no trunking"),
        ({"vers": "3", "xprtsec": "tls"}, "connections without TLS"),
        ({"vers": "4.0", "xprtsec": "mtls"}, "connections without TLS"),
        ({"other_options": "xprtsec=tls"}, "has a setting of its own: xprtsec"),
        ({"lookupcache": "some"}, "lookupcache: unknown value 'some'"),
        ({"other_options": "noatime,soft"}, "mount option soft has a setting of its own: recovery"),
        ({"other_options": "nolock"}, "has a setting of its own: lock"),
        ({"other_options": "timeo=14"}, "has a setting of its own: timeo_s"),
        ({"other_options": ["fsc"]}, "no client of a lab has cachefilesd"),
        ({"other_options": "trunkdiscovery"}, "its effect cannot be read back"),
        ({"other_options": "sec=krb5"}, "has a setting of its own: sec"),
        ({"other_options": "intr"}, "the kernel ignores it"),
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


RUN = [line.split("\t") for line in (DATA / "mount-options-linux-6.12.txt").read_text().splitlines()]
"""What was requested in a run, the options in mountstats, and those in /proc/mounts."""
SWITCHES = {"nocto": "cto", "nolock": "lock", "nosharecache": "sharecache"}
IGNORED_BY_V4 = "vers=4.2,hard,write=lazy,nolock,local_lock=all"
NOT_LISTED = ("vers=4.1,nofsc", "vers=4.1,namlen=100,bsize=4096")
"""What the kernel accepted, and lists nowhere, or changed."""


def spec_of(requested: str) -> MountSpec:
    """Return the request with these mount options."""
    fields: dict[str, Any] = {}
    for option in requested.split(","):
        name, _, value = option.partition("=")
        match name:
            case "soft" | "softerr" | "hard":
                fields["recovery"] = name
            case "timeo":
                fields["timeo_s"] = int(value) / 10
            case "noac" | "softreval":
                fields[name] = True
            case _ if name in SWITCHES:
                fields[SWITCHES[name]] = False
            case _ if name in MountSpec.model_fields:
                fields[name] = value
            case _:
                fields["other_options"] = (*fields.get("other_options", ()), option)
    return MountSpec.model_validate(fields)


def client_with(vers: str, listed: str, mounts: str) -> "Client":
    """Return a client on which the kernel listed these options."""
    text = re.sub(r"^\topts:\t.*$", f"\topts:\t{listed}", stats(vers), flags=re.MULTILINE)
    text = "\n".join(line for line in text.splitlines() if "\txprt:" not in line) + "\n"
    return Client(text, f"{SOURCE} /mnt/raidproof nfs4 {mounts} 0 0\n")


@pytest.mark.parametrize(("requested", "listed", "mounts"), RUN, ids=[one[0] for one in RUN])
def test_requested_options_are_found_in_what_the_kernel_listed(requested: str, listed: str, mounts: str) -> None:
    words = [option for option in requested.split(",") if why_refused(option) is None]
    if requested == IGNORED_BY_V4:
        with pytest.raises(RequestError, match="NFSv4 clients ignore it"):
            spec_of(requested)
        assert "local_lock=none" in listed
        assert "nolock" not in listed
        return
    spec = spec_of(",".join(words))
    mount = Mount(spec, client_with(spec.vers, listed, mounts), SOURCE)
    if requested in NOT_LISTED:
        with pytest.raises(NotEffective, match="other_options"):
            mount.activate()
    else:
        mount.activate()


@pytest.mark.parametrize(
    "option",
    [
        *(
            "soft",
            "softerr",
            "timeo=14",
            "retrans=3",
            "acregmin=2",
            "acregmax=61",
            "acdirmin=4",
            "acdirmax=61",
            "noac",
        ),
        *("nocto", "nosharecache", "lookupcache=none", "softreval", "write=eager", "max_connect=3", "nordirplus"),
        *("nosuid", "noatime", "bsize=4096", "actimeo=7"),
    ],
)
def test_a_requested_option_without_effect_is_an_error(option: str) -> None:
    (usual,) = [one for one in RUN if one[0] == "vers=4.1,trunkdiscovery"]
    with pytest.raises(NotEffective):
        Mount(spec_of(f"vers=4.1,{option}"), client_with(*["4.1", *usual[1:]]), SOURCE).activate()


@pytest.mark.parametrize("option", ["nolock", "local_lock=flock", "local_lock=all"])
def test_an_option_for_locks_without_effect_is_an_error(option: str) -> None:
    with pytest.raises(NotEffective, match="lock"):
        Mount(spec_of(f"vers=3,{option}"), Client(stats("3")), SOURCE).activate()


def test_what_is_not_mounted_has_no_options() -> None:
    with pytest.raises(RigError, match="lists nothing"):
        parse_mounts("proc /proc proc rw 0 0\n")
    assert parse_mounts("a /mnt/raidproof nfs ro 0 0\nb /mnt/raidproof nfs rw,noatime 0 0\n") == ("rw", "noatime")


NUMBERS = st.none() | st.integers(0, 100)
TIMES = st.fixed_dictionaries({"acregmin": NUMBERS, "acregmax": NUMBERS, "acdirmin": NUMBERS, "acdirmax": NUMBERS})
SPECS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    vers=st.sampled_from(["3", "4.0", "4.1", "4.2"]),
    recovery=st.sampled_from(["hard", "soft", "softerr"]),
    cto=st.booleans(),
    lock=st.booleans(),
    local_lock=st.sampled_from([None, "none", "flock", "posix", "all"]),
    sharecache=st.booleans(),
    softreval=st.booleans(),
    noac=st.booleans(),
    actimeo=NUMBERS,
    times=TIMES,
    lookupcache=st.sampled_from([None, "all", "pos", "positive", "none"]),
    write=st.sampled_from([None, "lazy", "eager", "wait"]),
    max_connect=st.none() | st.integers(1, 16),
    xprtsec=st.sampled_from(["none", "tls", "mtls"]),
    sec=st.sampled_from(["sys", "krb5", "krb5i", "krb5p"]),
)


@given(SPECS)
def test_options_say_what_was_requested(asked: dict[str, Any]) -> None:
    try:
        spec = MountSpec.model_validate(
            {**{key: value for key, value in asked.items() if key != "times"}, **asked["times"]}
        )
    except RequestError:
        return
    assert MountSpec.model_validate(spec.model_dump(mode="json")) == spec
    again = spec_of(",".join(option for option in spec.options() if not option.startswith("retry")))
    assert again == spec


def test_effects_are_those_of_nfs_5() -> None:
    usual = MountSpec().effects
    assert (usual.errors, usual.local_locks, usual.old_data_s, usual.old_attributes_s) == (frozenset(), False, 0, 60)
    assert MountSpec(recovery="softerr").effects.errors == {EBUSY, EIO, ETIMEDOUT}
    assert MountSpec(cto=False).effects.old_data_s == 60
    assert MountSpec(cto=False, actimeo=7).effects.old_data_s == 7
    assert MountSpec(cto=False, acregmin=1, acregmax=9).effects.old_data_s == 9
    assert MountSpec(cto=False, noac=True).effects == MountSpec(noac=True).effects
    assert MountSpec(actimeo=600).effects.old_data_s == 0
    assert MountSpec(actimeo=600).effects.old_attributes_s == 600
    assert MountSpec(noac=True).effects.old_attributes_s == 0
    assert MountSpec(softreval=True).effects.old_attributes_s == inf
    assert [MountSpec(vers="3", local_lock=one).effects.local_locks for one in ("none", "flock", "posix", "all")] == [
        *(False, False, True, True)
    ]
    assert MountSpec(vers="3", lock=False).effects.local_locks


class Client(FilesByCommands):
    """A fake machine with the mounts of the real output."""

    name = "client1"
    address = "10.77.0.21"

    def __init__(self, text: str, mounts: str = "") -> None:
        self.text = text
        self.mounts = mounts
        self.ran: list[str] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append(argv[0])
        return Completed(tuple(argv), 0, self.mounts if "/proc/self/mounts" in argv else self.text, "", self.name)

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
        ({"xprtsec": "tls"}, "xprtsec: requested tls, effective none"),
        ({"sec": "krb5p"}, "sec: requested krb5p, effective sys"),
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
