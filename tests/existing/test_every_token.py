"""Each word that was read about a server is in the plan, or among what the plan does not re-create."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.existing.given import Given
from raidproof.existing.reports import Kind, Text, reports_of
from raidproof.existing.server import ExistingServer, server_of
from raidproof.storage.array.level import LEVELS

WORDS = st.lists(st.from_regex(r"[a-z]{5,9}-[0-9]{2}", fullmatch=True), max_size=3, unique=True)
NAMES = ("sda", "sdb", "sdc", "sdd")
FSTAB = "/dev/md0 /srv xfs defaults\n"
OPTIONS = (
    *("sync", "async", "wdelay", "no_wdelay", "insecure", "crossmnt", "subtree_check", "root_squash", "all_squash"),
    *("anonuid=99", "sec=krb5p", "fsid=7", "mp", "xprtsec=mtls", "no_acl", "quux", "refer=/x@h", "nohide"),
)
FLAGS = {"writemostly": "{}: write-mostly", "failfast": "{}: failfast"}
"""How the plan names a member with a flag of mdadm --detail."""
PLAIN = "Personalities : [raid1]\nmd0 : active raid1 sdb[1] sda[0]\n 9 blocks super 1.2 [2/2] [UU]\n\n"


def imported(**texts: str) -> ExistingServer:
    kinds: Mapping[str, Kind] = {"mdstat": "mdstat", "mdadm": "mdadm", "exports": "exports"}
    given_texts = [Text(kinds[name], Given(name, text)) for name, text in texts.items()]
    return server_of(reports_of([*given_texts, Text("fstab", Given("fstab", FSTAB))]), "/srv")


def left_out(server: ExistingServer) -> list[str]:
    return [one.what for one in server.left_out]


@given(
    level=st.sampled_from(["1", "5", "6", "10"]),
    flags=st.lists(st.sampled_from(["", "(W)", "(R)", "(W)(R)", "(X)"]), min_size=4, max_size=4),
    states=st.sampled_from(["", " (auto-read-only)", " (read-only)"]),
    algorithm=st.integers(0, 30),
    copies=st.sampled_from(["2 near-copies", "2 far-copies", "3 offset-copies", "2 near-copies 2 far-copies"]),
    working=st.sampled_from([3, 4]),
    bitmap=st.sampled_from(
        ["", "bitmap: 3/59 pages [12KB], 65536KB chunk", "bitmap: 0/1 pages [0KB], 8KB chunk, file: /b"]
    ),
    action=st.sampled_from(["", "reshape = 12.6%", "resync=PENDING", "recovery = 1.0%", "check=DELAYED"]),
    metadata=st.sampled_from(["1.2", "1.0", "external:imsm"]),
    words=WORDS,
)  # fmt: skip
def test_mdstat(
    level: str,
    flags: list[str],
    states: str,
    algorithm: int,
    copies: str,
    working: int,
    bitmap: str,
    action: str,
    metadata: str,
    words: list[str],
) -> None:
    shape = {"1": "", "10": f"512K chunks {copies}"}.get(level, f"level {level}, 64k chunk, algorithm {algorithm}")
    progress = (
        f"      [==>...]  {action} (370/2929) finish=127.5min speed=33440K/sec\n" if "%" in action else f"  {action}\n"
    )
    members = " ".join(f"{name}[{slot}]{flags[slot]}" for slot, name in enumerate(NAMES))
    text = (
        f"Personalities : [raid6]\nmd0 : active{states} raid{level} {members}\n"
        f"      78137 blocks super {metadata} {shape} [4/{working}] [{'U' * working:_<4}] {' '.join(words)}\n"
        f"{progress}      {bitmap}\n\nunused devices: <none>\n"
    )
    server = imported(mdstat=text)
    said, settings = left_out(server), server.settings
    assert settings["level"].value == level
    expected = [*words, *re.findall(r"\(.*?\)", states)]
    expected += [
        f"{name}{flag}"
        for name, held in zip(NAMES, flags, strict=True)
        for flag in re.findall(r"\(.\)", held)
        if flag != "(W)"
    ]
    mostly = [name for name, held in zip(NAMES, flags, strict=True) if "(W)" in held]
    if level == "1" and 0 < len(mostly) < len(NAMES):
        assert settings["write_mostly"].value == len(mostly)
        assert [one.name for one in server.drives][-len(mostly) :] == mostly
    else:
        assert "write_mostly" not in settings
        expected += [f"{name}: write-mostly" for name in mostly]
    expected += [re.sub(r"\s*=\s*", " = ", action)] if action else []
    expected += [f"metadata {metadata}"] if metadata != "1.2" else []
    if working == 3:
        how = [one for one in server.stand_ins if one.what.startswith("1 missing or rebuilding member")]
        assert len(how) == (level != "0")
        # The progress of a rebuild is named with the member.
        said += [one.removeprefix(", ") for one in how[0].what.partition("member")[2:] if one]
    if bitmap:
        assert settings["consistency_policy"].value == "bitmap"
        if "bitmap_chunk" in settings:
            assert f"{int(settings['bitmap_chunk'].value) // 1024}KB chunk" in bitmap
        else:
            expected += ["bitmap chunk 8KB"]
        expected += ["bitmap in a file"] if "file" in bitmap else []
    if level in {"5", "6"}:
        numbers = {number: name for name, number in LEVELS[level].layouts(4).items()}
        if algorithm in numbers:
            assert settings["layout"].value == numbers[algorithm]
            assert settings["layout"].was_read
        else:
            expected.append(f"algorithm {algorithm}")
    if level == "10":
        *others, (count, kind) = re.findall(r"(\d) ([a-z])", copies)
        assert settings["layout"].value == f"{kind}{count}"
        expected += ["2 near-copies"] if others else []
    assert set(expected) <= set(said)
    assert set(said) - set(expected) <= {"clients *"}


@given(
    rows=st.lists(
        st.sampled_from(["active sync", "active sync writemostly", "active sync failfast", "replacement", "blocked"]),
        min_size=4,
        max_size=4,
    ),
    state=st.lists(
        st.sampled_from(["clean", "degraded", "reshaping", "recovering", "FAILED"]), min_size=1, unique=True
    ),
    fields=st.dictionaries(
        st.sampled_from(["Reshape Status", "New Layout", "Delta Devices", "Resync Status", "Cluster Name", "Quux"]),
        st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
    ),
    policy=st.sampled_from(["resync", "bitmap", "zeal"]),
)
def test_detail(rows: list[str], state: list[str], fields: dict[str, str], policy: str) -> None:
    lines = [f"{name:>18} : {value}" for name, value in fields.items()]
    table = [
        f"       {slot}       8       {slot}        {slot}      {row}   /dev/{NAMES[slot]}"
        for slot, row in enumerate(rows)
    ]
    text = "\n".join(
        [
            "/dev/md0:",
            "           Version : 1.2",
            "        Raid Level : raid5",
            "      Raid Devices : 4",
            f"             State : {', '.join(state)} ",
            "        Chunk Size : 512K",
            "            Layout : left-symmetric",
            f"Consistency Policy : {policy}",
            *lines,
            "",
            "    Number   Major   Minor   RaidDevice State",
            *table,
            "",
        ]
    )
    said = " | ".join(left_out(imported(mdadm=text)))
    expected = [f"{name} : {value}" for name, value in fields.items()]
    expected += [one for one in state if one != "clean"]
    expected += [
        FLAGS.get(word, "/dev/{}: " + word).format(NAMES[slot])
        for slot, row in enumerate(rows)
        for word in row.split()
        if word not in {"active", "sync"}
    ]
    expected += [policy] if policy == "zeal" else []
    assert [one for one in expected if one not in said] == []


@given(
    options=st.lists(
        st.sampled_from(OPTIONS),
        unique=True,
    ),
    other=st.lists(st.sampled_from(["ro", "async", "quux", "sec=krb5"]), unique=True),
    host=st.sampled_from(["*", "10.0.0.0/8", "@lab", "*.example.org"]),
)
def test_exports(options: list[str], other: list[str], host: str) -> None:
    server = imported(mdstat=PLAIN, exports=f"/srv {host}({','.join(['rw', *options])}) second({','.join(other)})\n")
    said, settings = " | ".join(one.what for one in (*server.left_out, *server.stand_ins)), server.settings
    synced = [one for one in options if one in {"sync", "async"}]
    assert settings["export"].value is (not synced or synced[-1] == "sync")
    in_plan = {"sync", "async", "wdelay", "no_wdelay", "root_squash"}
    others = str(settings["export_options"].value).split(",") if "export_options" in settings else []
    for one in set(options) - in_plan:
        name, _, value = one.partition("=")
        setting = settings.get(name)
        as_setting = setting is not None and str(setting.value) == (value or "True")
        assert as_setting or {"mp": "mountpoint"}.get(one, one) in others or f"export option {one}" in said, one
    assert settings["root_squash"].value is True
    assert f"options for second: {','.join(other) or 'none'}" in said
    assert "second" in said
    assert host == "*" or host in said


@pytest.mark.parametrize(
    ("line", "system"),
    [
        ("/usr -mapall=nobody -network 10.0.0.0 -mask 255.0.0.0", "BSD and macOS"),
        ("/usr -alldirs,maproot=0:10 host", "BSD and macOS"),
        ("/usr /home host", "BSD and macOS"),
        ("V4: / -sec=krb5", "BSD"),
        ("/usr -rw=a:b,root=a", "AIX"),
        ("share -F nfs -o rw /usr", "Solaris"),
    ],
)
def test_the_exports_file_of_another_system_is_named(line: str, system: str) -> None:
    with pytest.raises(RequestError, match=f"exports:2: .*{system}.*only servers with Linux can be imported"):
        imported(mdstat=PLAIN, exports=f"# comment\n{line}\n")


def test_every_entry_of_a_directory_is_named() -> None:
    server = imported(mdstat=PLAIN, exports="/srv *(rw,async)\n/srv *(rw,sync)\n")
    assert server.settings["export"].value is True
    [one] = [one for one in server.left_out if one.what == "another entry of /srv"]
    assert one.source == "exports:1"
