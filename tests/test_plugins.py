"""A kind is one file, in the package's folder or in another distribution. No other file names it."""

import json
import shutil
from pathlib import Path

import pytest

import raidproof
from tests.distribution import install, python

DATA = Path(__file__).parent / "data" / "run"
WORKLOAD = '''
from typing import Literal

from raidproof.workload.workload import Sample, Work, WorkloadSpec


class Toy:
    programs = ("true",)
    working_set = 4096
    timed_s = 1.0

    def prepare(self, place):
        pass

    def run(self, place):
        for machine in place.machines:
            machine.succeed(["true"])
        return Sample(primary="toys_per_s", values={"toys_per_s": 3.0}, seconds=1.0)

    def clean(self, place):
        pass


class ToySpec(WorkloadSpec):
    """Runs `true` on every machine."""

    tool: Literal["toy"] = "toy"
    toys: int = 1

    def workload(self):
        return Toy()

    def work(self):
        return Work(4096, reads=False, writes=True)
'''
SERVER = '''
from typing import Literal

from raidproof.storage.server import Server, ServerSpec, ServerState


class ToyServer(Server):
    def __init__(self, spec, machine, path):
        self.spec, self.machine, self.path = spec, machine, path

    def activate(self):
        self.machine.succeed(["toyd", self.path])
        return self.require_effective()

    restart = activate

    def end_grace(self):
        pass

    def deactivate(self):
        self.machine.succeed(["pkill", "toyd"])

    def applied(self):
        return self.spec.options()

    def require_effective(self):
        return ServerState(path=self.path, network="", options=self.spec.options(), lease_s=90, grace_s=90,
                           versions=("4.2",), delegations=False, max_block_size=1048576)


class ToyServerSpec(ServerSpec):
    """A server that is there for a test."""

    type: Literal["toy"] = "toy"
    toys: int = 1

    def server(self, machine, path="/srv/raidproof"):
        return ToyServer(self, machine, path)

    def options(self):
        return ("rw", "sync" if self.sync else "async")
'''
COLUMN = """
from raidproof.report.columns import Column

Column("recovery", "cuts survived", "", "How often the machine came back.", lambda cycle: "one")
Column("toys", "toys", "", "Columns of a group of their own stand last.", lambda cycle: cycle.name)
"""
PROVIDER = '''
from raidproof.provider.uml import Uml


class Toy(Uml):
    """Machines as User-mode Linux makes them, under another name."""

    name = "toy"
'''
CHECK = '''
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.evidence import CrashTestEvidence


class Toy(Check[CrashTestEvidence]):
    """A check that always says no."""

    name = "toy"

    def judge(self, evidence, conditions):
        reason = f"{len(evidence.history.operations)} operations, sync {conditions.export_sync}"
        return [Verdict(checker=self.name, outcome=Outcome.FAIL, reason=reason)]
'''
PLAN = """
[axes]
level = [5]
[[workload]]
tool = "toy"
toys = 2
"""


def test_an_installed_workload_is_part_of_a_plan(tmp_path: Path) -> None:
    install(tmp_path, "toys", {"toy_workload": WORKLOAD}, {"raidproof.workloads": "toy_workload"})
    (tmp_path / "plan.toml").write_text(PLAN)
    said = python(tmp_path, "-m", "raidproof", "run", "plan.toml", "--dry-run")
    assert said.returncode == 0, said.stderr
    assert "toy" in said.stdout + said.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package, which Python compiles once; a test adds one file and removes it."""
    folder = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__", "*.c")
    shutil.copytree(Path(raidproof.__file__).parent, folder / "raidproof", ignore=ignored)
    return folder


@pytest.mark.parametrize(
    ("room", "source", "listed"),
    [
        ("workload", WORKLOAD, "from raidproof.workload.workload import WORKLOADS as found"),
        ("storage/server", SERVER, "from raidproof.storage.server import SERVERS as found"),
        ("report/columns", COLUMN, "from raidproof.report.columns import COLUMNS as found"),
        ("verdict/checks", CHECK, "from raidproof.verdict.check import CHECKS as found"),
    ],
)
def test_a_file_in_its_room_is_enough(room: str, source: str, listed: str, copy: Path) -> None:
    toy = copy / "raidproof" / room / "toy.py"
    toy.write_text(source)
    said = python(copy, "-c", f"{listed}; print([name for name in found if 'toy' in name])")
    toy.unlink()
    assert "toy" in said.stdout, said.stderr


def test_an_installed_workload_runs_and_is_recorded(tmp_path: Path) -> None:
    install(tmp_path, "toys", {"toy_workload": WORKLOAD}, {"raidproof.workloads": "toy_workload"})
    code = """
from unittest.mock import Mock
from pydantic import TypeAdapter
from raidproof.workload.workload import AnyWorkload, Place, WORKLOADS
from raidproof.workload.regime import Memory, Route, regime_of
read = TypeAdapter(AnyWorkload)
spec = read.validate_python({"tool": "toy", "toys": 3})
assert read.validate_json(read.dump_json(spec)) == spec and spec.toys == 3
machine = Mock()
print(spec.workload().run(Place([machine], "/mnt")).value, machine.succeed.call_count, spec.access())
print(regime_of(spec.work(), Memory(server=1 << 30, client=1 << 30), Route(on="clients")).cache)
"""
    said = python(tmp_path, "-c", code)
    assert said.stdout == "3.0 1 None\nclient cache\n", said.stderr


def test_an_installed_server_can_be_used_in_a_stack(tmp_path: Path) -> None:
    install(tmp_path, "toys", {"toy_server": SERVER}, {"raidproof.servers": "toy_server"})
    code = """
from unittest.mock import Mock
from raidproof.storage.stack import Stack, StackSpec
array = {"level": "5", "members": ["disk0", "disk1", "disk2"]}
spec = StackSpec.model_validate({"array": array, "export": {"type": "toy", "toys": 2, "sync": False}})
assert StackSpec.model_validate_json(spec.model_dump_json()) == spec
assert StackSpec.model_validate({"array": array}).export.type == "knfsd"
server = Mock(address="10.0.0.1")
stack = Stack(spec, server, [])
print(stack.export.activate().options, server.succeed.call_args_list[-1].args[0])
stack.export.deactivate()
print(stack.export.applied(), spec.caveats() if hasattr(spec, "caveats") else stack.caveats()[:0])
"""
    said = python(tmp_path, "-c", code)
    assert said.stdout.splitlines()[0] == "('rw', 'async') ['toyd', '/srv/raidproof']", said.stderr
    assert said.stdout.splitlines()[1].startswith("('rw', 'async')"), said.stderr


def test_an_installed_provider_makes_the_machines_of_a_lab(tmp_path: Path) -> None:
    install(tmp_path, "toys", {"toy_provider": PROVIDER}, {"raidproof.providers": "toy_provider"})
    code = """
from raidproof.core.topology import server_and_clients
from raidproof.provider.registry import lab_of, names, provider_of
topology = server_and_clients(clients=1).model_copy(update={"provider": "toy"})
print(type(provider_of(topology)).__name__, type(lab_of(topology)).__name__, names())
"""
    said = python(tmp_path, "-c", code)
    assert said.stdout == "Toy NamespaceLab ('qemu', 'toy', 'uml', 'vagrant', 'hosts')\n", said.stderr


def test_an_installed_column_is_in_the_tables(tmp_path: Path) -> None:
    install(tmp_path, "toys", {"toy_column": COLUMN}, {"raidproof.columns": "toy_column"})
    code = """
from raidproof.report.columns import columns
found = columns()
print([column.title for column in found if column.group == "recovery"][-1], "/", found[-1].title, "/", len(found))
"""
    said = python(tmp_path, "-c", code)
    assert said.stdout == "cuts survived / toys / 18\n", said.stderr


def test_an_installed_check_judges_stored_runs(tmp_path: Path) -> None:
    install(tmp_path, "toys", {"toy_check": CHECK}, {"raidproof.checks": "toy_check"})
    run = shutil.copytree(DATA, tmp_path / "run")
    said = python(tmp_path, "-m", "raidproof", "judge", str(run), "--json")
    [cycle] = json.loads(said.stdout)["cycles"]
    assert cycle["verdicts"][-1]["checker"] == "toy", said.stderr
    assert (cycle["outcome"], cycle["reason"].split(" ", 2)[2]) == ("FAIL", "operations, sync True")


def test_a_distribution_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    install(tmp_path, "toys", {"toy_server": "import no_such_module"}, {"raidproof.servers": "toy_server"})
    said = python(tmp_path, "-c", "from raidproof.storage.server import SERVERS; print(list(SERVERS))")
    assert "raidproof.servers: toy_server of toys cannot be imported" in said.stderr
