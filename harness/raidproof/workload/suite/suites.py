"""All suites, in one table: a new suite is a member of the union and a row."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.layer import Spec
from raidproof.workload.suite import cthon, fsstress, fstests, fsx, ltp, pynfs
from raidproof.workload.suite.fsstress import built_fsstress
from raidproof.workload.suite.fsx import built_fsx
from raidproof.workload.suite.place import SuiteOutcome, SuitePlace, SuiteStep

SuiteSpec = Annotated[
    fsx.Fsx | fsstress.Fsstress | cthon.Cthon | pynfs.Pynfs | fstests.Fstests | ltp.Ltp,
    Field(discriminator="suite"),
]
"""Any suite; the field ``suite`` names it."""


class Suite(NamedTuple):
    """The functions and properties of one suite."""

    steps: Callable[[Any, SuitePlace], tuple[SuiteStep, ...]]
    parse: Callable[[str, Completed], SuiteOutcome]
    programs: tuple[str, ...]
    """Names of the program; empty if the suite is a folder."""
    entries: tuple[str, ...] = ()
    """Files that exist in the folder of a built suite."""
    remedy: str = ""
    directories: tuple[str, ...] = ()
    """Directories that must exist in the client."""
    built: Callable[[], Path] | None = None
    """Builds the suite on this host, once, and returns its path; for suites that are not installed."""
    trees: bool = False
    """Whether the tree that the suite leaves is compared with the server's."""


_SUITES: dict[type[Spec], Suite] = {
    fsx.Fsx: Suite(
        fsx.fsx_steps,
        fsx.parse_fsx,
        ("fsx", "fsx-linux"),
        remedy="build that of fstests (ltp/fsx) or of LTP (fsx-linux), or install the crate fsx",
        built=built_fsx,
    ),
    fsstress.Fsstress: Suite(
        fsstress.fsstress_steps,
        fsstress.parse_fsstress,
        ("fsstress",),
        remedy="build that of LTP or of fstests (ltp/fsstress)",
        built=built_fsstress,
        trees=True,
    ),
    cthon.Cthon: Suite(
        cthon.cthon_steps,
        cthon.parse_cthon,
        (),
        ("basic/test1", "special/op_unlk", "lock/tlocklfs"),
        "build the Connectathon suite (cthon04) and give its folder",
    ),
    pynfs.Pynfs: Suite(
        pynfs.pynfs_steps,
        pynfs.parse_pynfs,
        (),
        ("nfs4.1/testserver.py", "nfs4.1/xdrdef/nfs4_pack.py"),
        "build pynfs (its setup.py makes xdrdef) and give its folder",
    ),
    fstests.Fstests: Suite(
        fstests.fstests_steps,
        fstests.parse_fstests,
        (),
        ("check", "ltp/fsstress"),
        "build fstests and give its folder; the image needs bc",
        directories=(fstests.DIRECTORY,),
    ),
    ltp.Ltp: Suite(ltp.ltp_steps, ltp.parse_ltp_case, (), ("testcases/bin",), "install LTP and give its folder"),
}


def suite_of(spec: SuiteSpec) -> Suite:
    """Return the table row of a suite."""
    return _SUITES[type(spec)]
