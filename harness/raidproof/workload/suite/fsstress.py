"""fsstress: random operations of several processes on one tree.

By itself it only says that it ended. What it leaves is compared: names, types, modes, sizes and contents as the
client sees them, through its caches, must be what the server has.
"""

from typing import Literal

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.core.layer import Machine, Spec
from raidproof.workload.suite.outcome import SuiteOutcome, failed, passed, tail, unknown
from raidproof.workload.suite.place import SuitePlace, SuiteStep

NAME = "fsstress"
TREES = "trees agree"
LISTING_DEADLINE_S = 300.0
_SHOWN = 5
# LTP's removes its tree unless told -c; to that of xfstests -c means to remove it.
_KEEPING = """if "$0" -H 2>&1 | grep -q 'not to remove'; then set -- -c "$@"; fi; exec "$0" "$@\""""


class Fsstress(Spec):
    """One fsstress on one tree."""

    suite: Literal["fsstress"] = "fsstress"
    path: str | None = None
    """The program, of LTP or of xfstests; on the host or in the machine."""
    operations: int = Field(default=500, ge=1)
    """Of each process."""
    processes: int = Field(default=4, ge=1)
    seed: int = Field(default=1, ge=1)
    deadline_s: float = Field(default=600.0, gt=0)


def fsstress_steps(spec: Fsstress, place: SuitePlace) -> tuple[SuiteStep, ...]:
    """Return the one command, which leaves its tree."""
    numbers = {"-n": spec.operations, "-p": spec.processes, "-s": spec.seed}
    words = (word for name, value in numbers.items() for word in (name, str(value)))
    argv = ("sh", "-c", _KEEPING, place.path, "-d", place.directory, *words)
    return (SuiteStep(name=NAME, argv=argv, directory="/"),)


def parse_fsstress(name: str, ended: Completed) -> SuiteOutcome:
    """Judge its end, of which only the status tells."""
    if ended.ok:
        return passed(name)
    return unknown(name, f"status {ended.status}: {tail(ended.stderr or ended.stdout)}")


def listing_command(directory: str) -> list[str]:
    """Return what lists a tree: path, type, mode, size of files, target of links."""
    return [
        *["env", f"--chdir={directory}", "find", ".", "-mindepth", "1"],
        *["(", "-type", "f", "-printf", r"%P\t%y %m %s\n", "-o", "-printf", r"%P\t%y %m %l\n", ")"],
    ]


def sums_command(directory: str) -> list[str]:
    """Return what sums the contents of every file of a tree."""
    return ["env", f"--chdir={directory}", "find", ".", "-type", "f", "-exec", "sha256sum", "{}", "+"]


def parse_tree(listing: str, sums: str) -> dict[str, str]:
    """Read both into a description by path.

    Raises:
        RigError: a line is not whole.
    """
    tree: dict[str, str] = {}
    for line in listing.splitlines():
        path, tab, said = line.partition("\t")
        if not tab:
            raise RigError(f"find should print a path and what it is: {line!r}")
        tree[path] = said.strip()
    for line in sums.splitlines():
        digest, gap, path = line.lstrip("\\").partition("  ./")
        if not gap or path not in tree:
            raise RigError(f"sha256sum should print the sum of a file that find had found: {line!r}")
        tree[path] += f" {digest}"
    return tree


def read_tree(machine: Machine, directory: str) -> dict[str, str]:
    """Describe a tree as a machine sees it."""
    listing = machine.succeed(listing_command(directory), deadline_s=LISTING_DEADLINE_S)
    return parse_tree(listing, machine.succeed(sums_command(directory), deadline_s=LISTING_DEADLINE_S))


def compare_trees(client: dict[str, str], server: dict[str, str]) -> SuiteOutcome:
    """Judge whether both see the same."""
    if not client and not server:
        return unknown(TREES, "nothing was left to be compared")
    different = sorted(path for path in {*client, *server} if client.get(path) != server.get(path))
    if not different:
        return passed(TREES)
    shown = [
        f"{path}: client {client.get(path, 'has none')}, server {server.get(path, 'has none')}"
        for path in different[:_SHOWN]
    ]
    return failed(TREES, f"{len(different)} of {len({*client, *server})} differ: {'; '.join(shown)}")
