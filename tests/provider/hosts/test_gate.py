"""Safety rules for foreign disks."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.core.layer import HOMEHOST, UUID_PREFIX
from raidproof.provider.hosts.gate import Permission, Refusal, judge, judge_all, require_permitted
from raidproof.provider.hosts.inventory import MemberDisk
from raidproof.provider.hosts.survey import DiskFacts, Identity, Mark, Signature, Survey

GIB = 1 << 30
INVENTORY = "0" * 64
UNSTABLE = ["/dev/sdb", "/dev/vda", "/dev/disk/by-path/pci-0-ata-1", "/dev/disk/by-id/raidproof-disk0"]
ID = "/dev/disk/by-id/ata-DRIVE_A1"
OTHER = "/dev/disk/by-id/ata-DRIVE_B2"
ALIAS = "/dev/disk/by-id/wwn-0x5000c500a1"
DISKS = {"disk0": MemberDisk(id=ID), "disk1": MemberDisk(id=OTHER)}
IDENTITY = Identity(id=ID, size=GIB, model="DRIVE", serial="A1", wwn="0x5000c500a1")
MARK = Mark(inventory=INVENTORY, serial="disk0", identity=IDENTITY)
BLANK = DiskFacts(
    name="sdb",
    number="8:16",
    kind="disk",
    size=GIB,
    read_only=False,
    model="DRIVE",
    serial="A1",
    wwn="0x5000c500a1",
    blank=True,
)
ADOPTED = BLANK.model_copy(update={"mark": MARK, "first_mark": True})
SECOND = BLANK.model_copy(update={"name": "sdc", "number": "8:32", "serial": "B2", "wwn": "0x5000c500b2"})
MEMBER = Signature(device="sdb", kind="linux_raid_member", label=f"{HOMEHOST}:0", uuid="1f")


def survey(facts: DiskFacts = ADOPTED, **changes: object) -> Survey:
    found = Survey(
        machine="server",
        machine_id="abc",
        links={ID: facts.number, OTHER: SECOND.number},
        disks={facts.number: facts, SECOND.number: SECOND},
    )
    return found.model_copy(update=changes)


def mark_of(**changes: object) -> Mark:
    return MARK.model_copy(update={"identity": IDENTITY.model_copy(update=changes)})


def foreign(kind: str, **more: str) -> dict[str, object]:
    return {"signatures": (Signature(device="sdb", kind=kind, **more),)}


FOREIGN: dict[str, tuple[dict[str, object], str]] = {
    "a partition": ({"kind": "part"}, "not a whole disk: lsblk reports type 'part'"),
    "a mapping": ({"kind": "crypt"}, "not a whole disk: lsblk reports type 'crypt'"),
    "mounted": ({"mounts": ("/srv",)}, "mounted on /srv"),
    "the system": ({"mounts": ("/boot/efi", "/")}, "contains the running system"),
    "swap": ({"swaps": ("sdb2",)}, "used as swap: sdb2"),
    "a member of a running array": ({"holders": ("md127",)}, "in use by md127"),
    "open": ({"openers": ("qemu-system-x86 (4711)",)}, "open in qemu-system-x86 (4711)"),
    "claimed": ({"claimed": True}, "the kernel refuses to open the disk exclusively"),
    "read-only": ({"read_only": True}, "read-only"),
    "partitioned": ({"partitions": ("sdb1",)}, "has partitions: sdb1"),
    "GPT": (foreign("gpt"), "has the signature gpt on sdb"),
    "MBR": (foreign("dos"), "has the signature dos on sdb"),
    "ext4": (foreign("ext4", label="photos"), "has the signature ext4 named 'photos' on sdb"),
    "LVM": (foreign("LVM2_member"), "has the signature LVM2_member on sdb"),
    "LUKS": (foreign("crypto_LUKS"), "has the signature crypto_LUKS on sdb"),
    "ZFS": (foreign("zfs_member"), "has the signature zfs_member on sdb"),
    "bcache": (foreign("bcache"), "has the signature bcache on sdb"),
    "a foreign array": (
        foreign("linux_raid_member", label="nas:0"),
        "has the signature linux_raid_member named 'nas:0' on sdb",
    ),
    "an array without a name": (foreign("linux_raid_member"), "has the signature linux_raid_member on sdb"),
    "an array named after us": (foreign("linux_raid_member", label="0"), "has the signature linux_raid_member"),
    "a foreign log": (foreign("xfs_external_log", uuid="11111111-2222"), "has the signature xfs_external_log"),
    "a foreign journal": (foreign("jbd"), "has the signature jbd"),
    "a type that nobody knows": (foreign("new_fs_2040"), "has the signature new_fs_2040"),
    "unknown": ({"unknown": ("wipefs: status 1",)}, "the survey of the disk is incomplete: wipefs: status 1"),
    "too small": ({"size": 1 << 20}, "too small"),
}
Judge = Callable[..., Permission | Refusal]


def use(found: Survey, **more: object) -> Permission | Refusal:
    return judge("disk0", DISKS, found, INVENTORY)


def adopt(found: Survey) -> Permission | Refusal:
    return judge("disk0", DISKS, found, None)


def reasons(verdict: Permission | Refusal) -> str:
    assert isinstance(verdict, Refusal)
    return "\n".join(verdict.reasons)


@pytest.mark.parametrize("ask", [use, adopt])
@pytest.mark.parametrize(("change", "reason"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("facts", [ADOPTED, BLANK])
def test_a_foreign_fact_is_refused_with_its_reason(
    ask: Judge, facts: DiskFacts, change: dict[str, object], reason: str
) -> None:
    assert reason in reasons(ask(survey(facts.model_copy(update=change))))


@given(
    st.sets(st.sampled_from(sorted(FOREIGN)), min_size=1),
    st.sampled_from([None, INVENTORY]),
    st.sampled_from([None, MARK]),
    st.booleans(),
    st.lists(st.sampled_from([MEMBER]), max_size=1),
)
def test_no_combination_with_a_foreign_fact_is_ever_permitted(
    chosen: set[str], inventory: str | None, mark: Mark | None, blank: bool, signatures: list[Signature]
) -> None:
    changes: dict[str, object] = {"mark": mark, "blank": blank, "signatures": tuple(signatures)}
    expected = []
    for what in sorted(chosen):
        change, reason = FOREIGN[what]
        if "signatures" in change:
            assert isinstance(change["signatures"], tuple)
            assert isinstance(changes["signatures"], tuple)
            changes["signatures"] = (*changes["signatures"], *change["signatures"])
        else:
            changes |= change
        expected.append((change, reason))
    said = reasons(judge("disk0", DISKS, survey(ADOPTED.model_copy(update=changes)), inventory))
    for change, reason in expected:
        # Of two values for one field, the later one is what was found.
        if all(changes[field] == value or field == "signatures" for field, value in change.items()):
            assert reason in said


TEXT = st.text(max_size=8)
WORDS = st.lists(TEXT, max_size=2).map(tuple)


@given(
    st.builds(
        DiskFacts,
        name=st.just("sdb"),
        number=st.just("8:16"),
        kind=st.sampled_from(["disk", "part", "raid5", ""]),
        size=st.sampled_from([0, GIB, GIB + 512]),
        read_only=st.booleans(),
        model=st.sampled_from(["DRIVE", None]),
        serial=st.sampled_from(["A1", "A2", None]),
        wwn=st.sampled_from(["0x5000c500a1", "0x5000c500a2", None]),
        partitions=WORDS,
        mounts=WORDS,
        swaps=WORDS,
        holders=WORDS,
        openers=WORDS,
        claimed=st.booleans(),
        signatures=st.lists(
            st.one_of(
                st.just(MEMBER),
                st.builds(Signature, device=st.just("sdb"), kind=TEXT, label=st.one_of(st.none(), TEXT)),
            ),
            max_size=2,
        ).map(tuple),
        blank=st.booleans(),
        first_mark=st.booleans(),
        mark=st.sampled_from([None, MARK, MARK.model_copy(update={"serial": "disk1"})]),
        unknown=WORDS,
    ),
    st.sampled_from([None, INVENTORY, "1" * 64]),
)
def test_whatever_is_permitted_is_ours_or_blank_and_unused(facts: DiskFacts, inventory: str | None) -> None:
    verdict = judge("disk0", DISKS, survey(facts), inventory)
    if isinstance(verdict, Refusal):
        assert verdict.reasons
        return
    used = (facts.partitions, facts.mounts, facts.swaps, facts.holders, facts.openers, facts.unknown)
    assert not any(used)
    assert facts.kind == "disk"
    assert not facts.claimed
    assert not facts.read_only
    assert all(one == MEMBER for one in facts.signatures)
    if inventory is None:
        assert facts.blank or facts.mark
    else:
        assert facts.mark == MARK
        assert facts.first_mark
        assert inventory == INVENTORY


def test_a_blank_disk_may_be_adopted_and_not_used() -> None:
    assert isinstance(adopt(survey(BLANK)), Permission)
    assert "not adopted: the disk has no mark" in reasons(use(survey(BLANK)))


@pytest.mark.parametrize("facts", [ADOPTED, ADOPTED.model_copy(update={"signatures": (MEMBER,), "blank": False})])
def test_an_adopted_disk_may_be_used_and_adopted_again(facts: DiskFacts) -> None:
    permitted = use(survey(facts))
    assert isinstance(permitted, Permission)
    assert (permitted.serial, permitted.path, permitted.number) == ("disk0", ID, "8:16")
    assert permitted.mark == MARK
    assert isinstance(adopt(survey(facts)), Permission)


def test_our_own_log_may_be_wiped() -> None:
    log = Signature(device="sdb", kind="xfs_external_log", uuid=f"{UUID_PREFIX}00-0000-4000-8000-000000000000")
    found = ADOPTED.model_copy(update={"signatures": (log,), "blank": False, "first_mark": False})
    assert isinstance(use(survey(found)), Permission)
    assert isinstance(adopt(survey(found)), Permission)


@pytest.mark.parametrize("signatures", [(), (MEMBER,)])
def test_a_disk_with_only_its_last_mark_has_foreign_data(signatures: tuple[Signature, ...]) -> None:
    found = ADOPTED.model_copy(update={"signatures": signatures, "blank": False, "first_mark": False})
    assert "has overwritten the mark at the beginning" in reasons(use(survey(found)))
    assert "not zero" in reasons(adopt(survey(found)))


def test_our_array_without_our_mark_is_not_blank() -> None:
    lost = BLANK.model_copy(update={"signatures": (MEMBER,), "blank": False})
    assert "has the signature linux_raid_member" in reasons(adopt(survey(lost)))
    assert "no mark" in reasons(use(survey(lost)))


def test_unknown_content_is_not_blank() -> None:
    assert "not zero" in reasons(adopt(survey(BLANK.model_copy(update={"blank": False}))))


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        (MARK.model_copy(update={"inventory": "f" * 64}), "adopted by another inventory"),
        (MARK.model_copy(update={"serial": "disk1"}), "adopted as disk1"),
        (
            MARK.model_copy(update={"identity": IDENTITY.model_copy(update={"serial": "A0"})}),
            "adopted disk was another disk",
        ),
        (MARK.model_copy(update={"identity": IDENTITY.model_copy(update={"size": 2 * GIB})}), "another disk"),
        (MARK.model_copy(update={"identity": IDENTITY.model_copy(update={"id": ALIAS})}), "another disk"),
    ],
)
def test_a_mark_of_another_inventory_or_disk_does_not_count(mark: Mark, reason: str) -> None:
    assert reason in reasons(use(survey(BLANK.model_copy(update={"mark": mark, "first_mark": True}))))


def test_a_copy_of_an_adopted_disk_cannot_be_adopted_over() -> None:
    said = reasons(adopt(survey(BLANK.model_copy(update={"mark": mark_of(serial="A0"), "blank": False}))))
    assert "not zero" in said


@pytest.mark.parametrize("path", UNSTABLE)
def test_a_changing_name_is_refused_even_if_it_leads_to_a_permitted_disk(path: str) -> None:
    disks = {"disk0": MemberDisk(id=path)}
    assert path in reasons(judge("disk0", disks, survey(ADOPTED, links={path: "8:16"}), INVENTORY))


def test_missing_and_dangling_names_are_refused() -> None:
    assert f"missing: server has no {ID}" in reasons(use(survey(links={})))
    assert "does not lead to a block device" in reasons(use(survey(links={}, dangling=(ID,))))
    assert "does not list" in reasons(use(survey(links={ID: "8:99"})))


def test_one_disk_by_two_names_is_refused_for_both() -> None:
    disks = {"disk0": MemberDisk(id=ID), "disk1": MemberDisk(id=ALIAS)}
    found = survey(links={ID: "8:16", ALIAS: "8:16"})
    for name, other in (("disk0", "disk1"), ("disk1", "disk0")):
        assert f"the same disk as {other}" in reasons(judge(name, disks, found, INVENTORY))


def test_two_paths_to_one_disk_are_refused() -> None:
    twin = SECOND.model_copy(update={"wwn": ADOPTED.wwn})
    found = survey(disks={"8:16": ADOPTED, "8:32": twin})
    assert "sdc is the same disk" in reasons(use(found))


def test_an_incomplete_survey_permits_nothing() -> None:
    assert "is incomplete: /proc/swaps" in reasons(use(survey(unknown=("/proc/swaps",))))


def test_a_disk_of_another_size_than_asked_is_refused() -> None:
    disks = {"disk0": MemberDisk(id=ID, size=2 * GIB)}
    assert "1GiB, not the 2GiB" in reasons(judge("disk0", disks, survey(), INVENTORY))


def test_every_reason_of_every_disk_is_reported_at_once() -> None:
    bad = ADOPTED.model_copy(update={"mounts": ("/srv",), "read_only": True})
    with pytest.raises(RequestError) as refused:
        require_permitted(judge_all(DISKS, survey(bad), INVENTORY))
    for part in ("disk0", ID, "mounted on /srv", "read-only", "disk1", OTHER, "no mark"):
        assert part in str(refused.value)


def test_only_the_gate_creates_permissions() -> None:
    with pytest.raises(TypeError):
        Permission(serial="disk0", path=ID, number="8:16", identity=IDENTITY, mark=None)  # type: ignore[call-arg]
