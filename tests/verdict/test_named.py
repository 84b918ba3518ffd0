"""The agreement of failures of explorations with the crash states of findings."""

from pathlib import Path

import pytest

from raidproof.record.failure import FailureRecord, OrderRecord, ShrunkRecord, WriteRecord
from raidproof.record.finding import CrashStates, Finding, Layer, load_findings
from raidproof.verdict.named import Software, agrees, finding_of, shown_by

FINDINGS = load_findings(Path(__file__).parents[2] / "findings")
TESTED = Software(kernel="6.12.113", filesystem="xfs", level="5", server="knfsd", volume="direct")


def write(structure: str | None, *, torn: bool = False) -> WriteRecord:
    return WriteRecord(request=7, kind="write", member="disk1", lba=8, sectors=8, structure=structure, torn=torn)


def failure(
    promise: str = "recovery",
    damage: str = "not mounted",
    *,
    survivor: WriteRecord | None = None,
    early: bool = False,
    kernel: list[str] | None = None,
) -> FailureRecord:
    order = None
    if early:
        order = OrderRecord(barrier=write("XFS log record"), lost=write(None))
    return FailureRecord(
        promise=promise,
        damage=damage,
        end="not-mounted",
        states=1,
        state="7-00c0ffee",
        dump="[7,[]]",
        policy="torn",
        cut=7,
        at_s=0.1,
        reason="not mounted",
        kernel=kernel or [],
        order=order,
        shrunk=ShrunkRecord(
            state="7-00c0ffee",
            dump="[7,[]]",
            survivors=[survivor] if survivor else [],
            not_there=1,
            tried=3,
        ),
    )


TORN = failure(
    survivor=write("XFS reverse mapping btree", torn=True),
    kernel=["corruption: XFS (md127): Metadata CRC error detected at xfs_rmapbt_read_verify"],
)
EARLY = failure("blocks whole", "old data of the disk", early=True)


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (TORN, "xfs-torn-recovery"),
        (EARLY, "md-early-commit-block"),
        (failure(early=True), "md-early-commit-block"),
        (failure("acknowledged by the application", "the operation is missing", early=True), "md-early-commit-block"),
    ],
)
def test_a_failure_is_named_by_its_finding(found: FailureRecord, name: str) -> None:
    assert finding_of(shown_by(found), TESTED, FINDINGS) == name


@pytest.mark.parametrize(
    "found",
    [
        failure(),  # no write survives in part, and no order is broken
        failure(survivor=write("XFS reverse mapping btree")),  # whole
        failure(
            survivor=write(None, torn=True),
            kernel=["corruption: XFS (md127): Metadata CRC error detected at xfs_rmapbt_read_verify"],
        ),  # no metadata
        failure("blocks whole", "old data of the disk"),
        failure("write + fsync", "the block has an older generation"),
        failure("acknowledged by the application", "the operation is missing"),
    ],
)
def test_what_is_not_known_to_agree_has_no_finding(found: FailureRecord) -> None:
    assert finding_of(shown_by(found), TESTED, FINDINGS) is None


def test_a_kernel_without_the_defect_has_another_one() -> None:
    finding = next(one for one in FINDINGS if one.id == "md-early-commit-block")
    (release,) = finding.not_affected
    tested = Software(kernel=release, filesystem="xfs", level="5", server="knfsd", volume="direct")
    assert finding_of(shown_by(EARLY), tested, FINDINGS) is None


@pytest.mark.parametrize(
    "states",
    [
        CrashStates(damages=("recovery: *",), filesystems=("ext4",)),
        CrashStates(damages=("recovery: *",), levels=("6",)),
        CrashStates(damages=("recovery: *",), servers=("ganesha",)),
        CrashStates(damages=("recovery: *",), volumes=("writecache",)),
        CrashStates(damages=("blocks whole: *",)),
        CrashStates(damages=("recovery: *",), kernel=("oops: *",)),
        CrashStates(damages=("recovery: *",), torn=("ext4 *",)),
        CrashStates(damages=("recovery: *",), early_barrier=True),
        CrashStates(damages=("recovery: *",), since="6.13"),
        CrashStates(damages=("recovery: *",), since="6.12.114"),
    ],
    ids=repr,
)
def test_each_field_restricts(states: CrashStates) -> None:
    assert not agrees(shown_by(TORN), TESTED, states)
    assert agrees(shown_by(TORN), TESTED, CrashStates(damages=("recovery: *",), since="6.12"))


def test_the_first_finding_that_agrees_is_named() -> None:
    def made_up(name: str, *states: CrashStates) -> Finding:
        return Finding(
            id=name, title="", short="", layer=Layer.MD, wrong="", software="", reproduce="", evidence="", state="",
            crash_states=states,
        )  # fmt: skip

    every = CrashStates(damages=("*",))
    assert (
        finding_of(shown_by(TORN), TESTED, [made_up("none"), made_up("first", every), made_up("second", every)])
        == "first"
    )
