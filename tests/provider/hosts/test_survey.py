import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.guest import disk_probe as probe
from raidproof.provider.hosts.gate import Refusal, judge
from raidproof.provider.hosts.inventory import BY_ID, MemberDisk
from raidproof.provider.hosts.survey import (
    DiskFacts,
    Identity,
    Mark,
    Signature,
    Survey,
    assemble,
    blkid_command,
    encode,
    parse_blkid,
    parse_lsblk,
    parse_probe,
    parse_wipefs,
    survey,
    wipefs_command,
)
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[2] / "data" / "hosts"
PROBE = (DATA / "probe-in-use.txt").read_text()
LSBLK = (DATA / "lsblk-2.41-in-use.json").read_text()
WIPEFS = (DATA / "wipefs-2.41-in-use.json").read_text()
BLKID = (DATA / "blkid-2.41-in-use.txt").read_text()


def ended(stdout: str, status: int = 0, stderr: str = "") -> Completed:
    return Completed(("tool",), status, stdout, stderr, "server")


def found(
    *, text: str = PROBE, lsblk: str = LSBLK, wipefs: str = WIPEFS, blkid: str = BLKID, status: int = 0
) -> Survey:
    return assemble("server", parse_probe(text), ended(lsblk), ended(wipefs, status), ended(blkid))


def disk(name: str, whole: Survey | None = None) -> DiskFacts:
    return next(one for one in (whole or found()).disks.values() if one.name == name)


def kinds(facts: DiskFacts) -> set[str]:
    return {one.kind for one in facts.signatures}


def test_every_use_and_signature_of_a_machine_is_found() -> None:
    whole = found()
    assert not whole.unknown
    assert whole.links[f"{BY_ID}virtio-3"] == "254:48"
    assert whole.dangling == (f"{BY_ID}virtio-gone",)
    assert f"{BY_ID}none" not in whole.links
    assert kinds(disk("vda")) == {"ext4"}
    assert disk("vdb").mounts == ("/mnt/their files",)
    assert disk("vdb").claimed
    assert disk("vdc").holders == ("md127",)
    assert disk("vdc").mounts == ("/mnt/md",)
    assert disk("vdc").signatures[0].label == "nas:127"
    assert disk("vdd").swaps == ("/dev/vdd",)
    assert disk("vde").partitions == ("vde1",)
    assert kinds(disk("vde")) == {"gpt", "PMBR", "ext4"}
    assert disk("ubda").mounts == ("/",)
    assert disk("ubdb").read_only


def test_a_log_or_journal_whose_uuid_is_ours_is_ours() -> None:
    for name, kind in (("vdf", "jbd"), ("vdg", "xfs_external_log")):
        assert kinds(disk(name)) == {kind}
        assert all(one.owned for one in disk(name).signatures)


def test_every_disk_of_that_machine_is_refused() -> None:
    whole = found()
    disks = {f"disk{number}": MemberDisk(id=path) for number, path in enumerate(whole.links)}
    for inventory in (None, "0" * 64):
        assert all(isinstance(judge(name, disks, whole, inventory), Refusal) for name in disks)


def test_a_mark_is_read_and_does_not_make_a_disk_less_blank() -> None:
    mark = Mark(inventory="1" * 64, serial="disk0", identity=Identity(id=f"{BY_ID}virtio-0", size=335544320))
    lines = [line for line in PROBE.splitlines() if line != "end"]
    text = "\n".join([*lines, f"first\t254:0\t{encode(mark).hex()}", "end"])
    assert (disk("vda", found(text=text)).mark, disk("vda", found(text=text)).first_mark) == (mark, True)
    last = "\n".join([*lines, f"last\t254:0\t{encode(mark).hex()}", "end"])
    assert (disk("vda", found(text=last)).mark, disk("vda", found(text=last)).first_mark) == (mark, False)
    other = encode(mark.model_copy(update={"serial": "disk1"})).hex()
    both = "\n".join([*lines, f"first\t254:0\t{other}", f"last\t254:0\t{encode(mark).hex()}", "end"])
    # Parity that looks like a mark, at the end of a member of ours.
    assert disk("vda", found(text=both)).mark is not None
    assert disk("vda", found(text=both)).mark != mark


@pytest.mark.parametrize(
    "broken",
    [
        {"lsblk": LSBLK[:-40]},
        {"lsblk": "{}"},
        {"lsblk": ""},
        {"wipefs": WIPEFS[:-40]},
        {"wipefs": (DATA / "wipefs-2.41-absent.txt").read_text()},
        {"wipefs": "[]"},
        {"blkid": "TYPE=ext4\n"},
        {"blkid": "blkid: nonsense\n"},
        {"status": 1},
    ],
)
def test_missing_output_of_a_tool_makes_the_survey_incomplete(broken: dict[str, str]) -> None:
    assert found(**broken).unknown  # type: ignore[arg-type]


@given(st.integers(min_value=0, max_value=len(PROBE) - 2))
def test_a_look_that_was_cut_off_is_an_error(length: int) -> None:
    with pytest.raises(RigError, match="is truncated"):
        parse_probe(PROBE[:length])


def test_a_look_that_makes_no_sense_is_an_error() -> None:
    with pytest.raises(RigError, match="has an invalid line"):
        parse_probe("machine\tabc\nfoo\nend\n")


@pytest.mark.parametrize("word", ["disk", "size", "ro", "blank"])
def test_a_fact_that_is_missing_is_unknown(word: str) -> None:
    text = "\n".join(line for line in PROBE.splitlines() if not line.startswith(f"{word}\t254:0\t"))
    number = "254:0"
    assert word in found(text=text).disks[number].unknown


def test_a_disk_that_two_tools_describe_differently_is_unknown() -> None:
    renamed = found(text=PROBE.replace("disk\t254:0\tvda", "disk\t254:0\tvdz"))
    assert any("another device as 254:0: vda" in one for one in renamed.disks["254:0"].unknown)


def test_lsblk_before_2_33_prints_strings() -> None:
    old = json.loads(LSBLK)
    for device in old["blockdevices"]:
        device["size"], device["ro"] = str(device["size"]), "1" if device["ro"] else "0"
    assert parse_lsblk(json.dumps(old)) == parse_lsblk(LSBLK)


def test_a_foreign_signature_is_not_hidden_by_one_of_ours() -> None:
    more = json.loads(WIPEFS)
    more["signatures"].append({"device": "vdf", "offset": "0x9", "type": "jbd", "uuid": "11111111", "label": None})
    assert not all(one.owned for one in disk("vdf", found(wipefs=json.dumps(more))).signatures)


def test_both_tools_are_heard() -> None:
    assert Signature(device="vde", kind="gpt", uuid=None) in parse_wipefs(WIPEFS)
    assert ("vdg", "xfs_external_log") in {(one.device, one.kind) for one in parse_blkid(BLKID)}
    without = json.dumps({"signatures": []})
    assert kinds(disk("vda", found(wipefs=without))) == {"ext4"}
    assert kinds(disk("vda", found(blkid=""))) == {"ext4"}


class Server(FilesByCommands):
    """A fake that answers with the stored output of a real machine."""

    name = address = "server"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 0) -> Completed:
        self.asked.append(list(argv))
        said = {"python3": PROBE, "lsblk": LSBLK, "wipefs": WIPEFS, "blkid": BLKID}[argv[0]]
        return Completed(tuple(argv), 0, said, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 0) -> str:
        return self.run(argv, stdin=stdin).stdout


def test_a_survey_is_four_commands() -> None:
    server = Server()
    assert survey(server, ["/dev/disk/by-id/virtio-0"]) == assemble(
        "server", parse_probe(PROBE), ended(LSBLK), ended(WIPEFS), ended(BLKID)
    )
    assert [argv[0] for argv in server.asked] == ["python3", "lsblk", "wipefs", "blkid"]
    assert "--no-act" in wipefs_command(["vda"])
    assert "--probe" in blkid_command(["vda"])


def test_the_probe_opens_nothing_for_writing() -> None:
    source = Path(probe.__file__).read_text()
    for word in ("O_RDWR", "O_WRONLY", '"w"', '"r+', "os.write", "pwrite", "ioctl", "subprocess"):
        assert word not in source


def test_a_machine_that_cannot_be_looked_at_is_an_error() -> None:
    class Bare(Server):
        def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 0) -> Completed:
            return Completed(tuple(argv), 127, "", "python3: not found", self.name)

    with pytest.raises(RigError, match="python3: not found"):
        survey(Bare(), ["/dev/disk/by-id/x"])
