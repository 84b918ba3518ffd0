"""A kind of file system is one file, in the folder of the kinds or in another distribution."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequestError, RequirementMissing, RigError
from raidproof.core.units import KIB
from raidproof.crash.owner import owner
from raidproof.plan.axes import axes
from raidproof.plan.cell import Matrix, matrix_of
from raidproof.plan.forecast import cell_table
from raidproof.plan.plan import read_plan
from raidproof.record.cell import CellRecord
from raidproof.run.run import of_interest
from raidproof.storage import filesystem as folder
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem import (
    DIRECTORY,
    FILESYSTEMS,
    Filesystem,
    FilesystemSpec,
    FilesystemState,
    XfsSpec,
    read_write_back,
)
from raidproof.storage.stack import StackSpec
from raidproof.verdict.kernel_log import findings
from raidproof.workload.ledger import LedgerSpec
from tests.distribution import install, python
from tests.guest_files import FilesByCommands

TOY = Path(__file__).with_name("toy.py")
GEOMETRY = Geometry(64 * KIB, 3)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FilesystemSpec]]:
    """Put the file into the folder of the kinds before the registry is loaded."""
    shutil.copy(TOY, tmp_path)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    monkeypatch.setattr(FILESYSTEMS, "_loaded", False)
    yield FILESYSTEMS["toy"]
    FILESYSTEMS.remove("toy")
    del sys.modules[f"{folder.__name__}.toy"]


class ToyServer(FilesByCommands):
    """A fake machine with the tools of toy, with the requested packing or another one."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, packing: str | None = None, **said: str) -> None:
        self.packing = packing
        self.said = {"grep": "/proc/a:3000\n/proc/b:500\n", "toyowner": "/word", **said}
        self.mounted: list[str] = []
        self.did: list[str] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.did.append(argv[0])
        status = 0
        match argv[0]:
            case "mkfs.toy":
                self.packing = self.packing or argv[1].partition("=")[2]
                self.said["toyinfo"] = f"{self.packing} {argv[2].partition('=')[2]}\n"
            case "mount":
                status = 32 if "dmesg" in self.said else 0
                one = {"target": argv[-1], "source": argv[-2], "fstype": argv[3], "options": "rw,noatime"}
                self.said["findmnt"] = json.dumps({"filesystems": [one]})
        return Completed(tuple(argv), status, self.said.get(argv[0], ""), "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        ended = self.run(argv)
        if not ended.ok:
            raise CommandFailed(ended)
        return ended.stdout


def stack_of(**asked: Any) -> StackSpec:
    array = {"level": 5, "members": ("disk0", "disk1", "disk2", "disk3"), "chunk_size": "64KiB"}
    return StackSpec.model_validate({"array": array, "filesystem": {"type": "toy", **asked}})


def test_it_is_made_mounted_checked_and_removed(toy: type[FilesystemSpec]) -> None:
    server = ToyServer()
    spec = stack_of(packing="tight", mount_options="noatime").filesystem
    made = Filesystem(spec, server, "/dev/md0", GEOMETRY)
    made.create()
    state = made.activate()
    assert (state.type, state.su, state.options) == ("toy", 64 * KIB, ("rw", "noatime"))
    assert state.model_dump(mode="json")["packing"] == "tight"
    assert FilesystemState.model_validate_json(state.model_dump_json()) == state
    assert read_write_back(server, state).commit_s == 7
    assert owner(server, spec, "/dev/md0", DIRECTORY, 5000) == "file /word, bytes 4096-8191"
    made.deactivate()
    assert made.check().outcome == "clean"
    made.destroy()
    assert server.did == [
        *("mkfs.toy", "mount", "findmnt", "toyinfo", "grep", "toyowner", "umount", "toyck", "wipefs"),
    ]


def test_what_only_it_has_is_compared_too(toy: type[FilesystemSpec]) -> None:
    made = Filesystem(stack_of(packing="tight").filesystem, ToyServer("none"), "/dev/md0", GEOMETRY)
    made.create()
    with pytest.raises(
        NotEffective, match="toy on /dev/md0 is not as requested: packing: requested tight, effective none"
    ):
        made.activate()


def test_another_kind_that_is_mounted_is_not_what_was_asked(toy: type[FilesystemSpec]) -> None:
    server = ToyServer()
    Filesystem(toy.model_validate({}), server, "/dev/md0").create()
    server.succeed(["mount", "--mkdir", "--types", "toy", "/dev/md0", DIRECTORY])
    with pytest.raises(NotEffective, match="requested xfs, effective toy"):
        Filesystem(XfsSpec(), server, "/dev/md0").state()


def test_the_message_of_a_too_old_kernel_is_recognised(toy: type[FilesystemSpec]) -> None:
    with pytest.raises(RequirementMissing, match="toyfs: too new for this"):
        Filesystem(toy.model_validate({}), ToyServer(dmesg="[1] toyfs: too new for this\n"), "/dev/md0").activate()
    with pytest.raises(CommandFailed):
        Filesystem(
            toy.model_validate({}), ToyServer(dmesg="XFS: has unknown incompatible features\n"), "/dev/md0"
        ).activate()


def test_a_kernel_without_the_file_system_is_reported(toy: type[FilesystemSpec]) -> None:
    server = ToyServer(dmesg="", cat="nodev\tproc\n\text4\n")
    with pytest.raises(RequirementMissing, match="server: the kernel does not support toy, by /proc/filesystems"):
        Filesystem(toy.model_validate({}), server, "/dev/md0").activate()
    server = ToyServer(dmesg="", cat="nodev\tproc\n\ttoy\n")
    with pytest.raises(CommandFailed):
        Filesystem(toy.model_validate({}), server, "/dev/md0").activate()


def test_an_image_without_the_program_is_reported(toy: type[FilesystemSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    server = ToyServer()
    ends = iter((127, 1))
    monkeypatch.setattr(server, "run", lambda argv, **_: Completed(tuple(argv), next(ends), "", "", "server"))
    with pytest.raises(RequirementMissing, match=r"server: the image has no program mkfs\.toy"):
        Filesystem(toy.model_validate({}), server, "/dev/md0").create()
    with pytest.raises(CommandFailed):
        Filesystem(toy.model_validate({}), server, "/dev/md0").create()


def test_a_record_of_it_is_read_as_it_was_written(toy: type[FilesystemSpec]) -> None:
    stack = stack_of(packing="tight", extent_size="1MiB")
    record = CellRecord(
        name="filesystem=toy",
        settings={"filesystem": "toy"},
        workload={},
        unit="",
        asked=stack.model_dump(mode="json"),
    )
    again = CellRecord.model_validate_json(record.model_dump_json())
    assert StackSpec.model_validate(again.asked) == stack
    assert type(StackSpec.model_validate_json(stack.model_dump_json()).filesystem) is toy


def test_the_ledger_does_what_it_can(toy: type[FilesystemSpec]) -> None:
    assert "clone" not in LedgerSpec().fitting("4.2", "toy", "knfsd")[1]
    assert LedgerSpec().fitting("4.2", "ext4", "knfsd")[1]["clone"] == "ext4 does not share blocks between files"


@pytest.mark.parametrize(
    "line",
    [
        "XFS (md0): Internal error i != 1 at line 3504 of file fs/xfs/libxfs/xfs_btree.c",
        "XFS (md0): Corruption of in-memory data (0x8) detected",
        "XFS (md0): log I/O error -5, shutting down filesystem",
        "EXT4-fs error (device md0): ext4_lookup:1855: inode #2: comm ls: deleted inode referenced: 12",
        "toyfs: broken on md0",
    ],
)
def test_kernel_messages_about_damage_are_judged(toy: type[FilesystemSpec], line: str) -> None:
    assert ("corruption", line) in findings(f"all is well\n{line}\n")
    assert findings("toyfs: mounted md0\n") == []


def test_damage_to_an_unknown_kind_is_not_judged() -> None:
    assert findings("toyfs: broken on md0\n") == []


def test_the_versions_of_its_tools_are_recorded(toy: type[FilesystemSpec]) -> None:
    installed = {"toyprogs": "1.0", "xfsprogs": "6.13", "e2fsprogs": "1.47", "mdadm": "4.4", "vim": "9"}
    assert of_interest(installed) == {name: installed[name] for name in installed if name != "vim"}


def matrix(**asked: Any) -> Matrix:
    return matrix_of(read_plan({"axes": asked, "workload": {"tool": "dd"}}, source="here.toml"))


def test_a_plan_varies_it_and_what_only_it_has(toy: type[FilesystemSpec]) -> None:
    plan = matrix(filesystem=["xfs", "toy"], packing=["none", "tight"], extent_size=["1MiB"], log_su=["32KiB"])
    assert [cell.name for cell in plan.cells] == [
        "filesystem=xfs log_su=32KiB",
        "filesystem=toy packing=none extent_size=1MiB",
        "filesystem=toy packing=tight extent_size=1MiB",
    ]
    assert "packing is left out where filesystem is not toy" in plan.without
    assert plan.cells[2].stack.filesystem == toy.model_validate({"packing": "tight", "extent_size": "1MiB"})
    assert cell_table(plan).row_count == 3
    assert axes()["filesystem"].help == f"type of the file system: {' or '.join(FILESYSTEMS)}"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"filesystem": ["toi"]}, r"unknown value 'toi'; did you mean 'toy'\? valid: .*ext4, .*toy, .*xfs"),
        ({"filesystem": ["toy"], "packing": ["tigt"]}, "unknown value 'tigt'; did you mean 'tight'"),
        ({"filesystem": ["toy"], "extent_size": [True]}, "extent_size: not a size"),
    ],
)
def test_what_it_has_not_is_refused(toy: type[FilesystemSpec], asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        matrix(**asked)


def test_without_its_file_there_is_none() -> None:
    with pytest.raises(RequestError, match="'toy'"):
        stack_of()
    with pytest.raises(RequestError, match="unknown axis 'packing'"):
        matrix(packing=["none"])


def test_an_axis_needs_a_field() -> None:
    with pytest.raises(TypeError, match="Odd has axes without fields: packing"):

        class Odd(XfsSpec):
            axes: ClassVar[Mapping[str, str]] = {"packing": "how it packs"}


def test_an_axis_of_its_own_is_not_named_like_another(toy: type[FilesystemSpec]) -> None:
    class Odd(toy):  # type: ignore[valid-type, misc]
        axes: ClassVar[Mapping[str, str]] = {"rate": "how fast it is"}
        type: Literal["odd"] = "odd"
        rate: int = 1

    try:
        with pytest.raises(RigError, match="axes of single kinds have the same names as other axes: rate"):
            axes()
    finally:
        FILESYSTEMS.remove("odd")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with an installed distribution that has a file system, and with a plan."""
    install(tmp_path, "toy", {"toy_of_somebody": TOY.read_text()}, {"raidproof.filesystems": "toy_of_somebody"})
    (tmp_path / "plan.toml").write_text(
        '[axes]\nfilesystem = ["xfs", "toy"]\npacking = ["none", "tight"]\n\n[[workload]]\ntool = "dd"\n'
    )
    return tmp_path


def dry_run(home: Path) -> subprocess.CompletedProcess[str]:
    return python(home, "-m", "raidproof", "run", "plan.toml", "--dry-run")


def test_a_plan_names_what_is_installed(installed: Path) -> None:
    said = dry_run(installed)
    assert said.returncode == 0, said.stderr
    assert "cells: 3 of 4 combinations" in said.stdout
    assert "packing is left out where filesystem is not toy" in said.stdout


def test_what_is_installed_and_broken_is_named(installed: Path) -> None:
    (installed / "toy_of_somebody.py").write_text("import no_such_module\n")
    said = dry_run(installed)
    assert said.returncode != 0
    assert "toy_of_somebody of toy cannot be imported" in " ".join((said.stdout + said.stderr).split())
