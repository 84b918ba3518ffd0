"""Rules of the code that no linter checks. Each rule has a test in which it is violated."""

import ast
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from raidproof.storage.filesystem import FILESYSTEMS
from tests.kinds import Kinds

HOME = Path(__file__).resolve().parents[1]
PLUGIN = HOME / "scenarios" / "suites"
SOURCES = sorted(path for folder in (HOME / "harness", PLUGIN / "raidproof_suites") for path in folder.rglob("*.py"))
FOLDERS = ("harness", "scenarios", "findings", "benchmarks")
PROGRAMS = sorted(path for folder in FOLDERS for path in (HOME / folder).rglob("*.py"))
MAX_LINES = 600
SHELLS = {"system": "os.system", "popen": "os.popen", "getoutput": "subprocess.getoutput"}
VAGUE = {"utils", "util", "common", "helpers", "base", "misc"}
CLOCK = "harness/raidproof/core/waiting.py"
TERMINAL = "harness/raidproof/core/terminal.py"
STATISTICS = {
    *(f"harness/raidproof/verdict/change/{name}.py" for name in ("statistics", "change_point", "bisection")),
    "harness/raidproof/drive_measurement/rotational_fit.py",
}
PACKAGE = "harness/raidproof/"
KINDS = "harness/raidproof/storage/filesystem/"
OF_FILESYSTEM = Kinds(dict(FILESYSTEMS.items()))
NOT_A_KIND = (
    # The array that this file system makes itself.
    "harness/raidproof/storage/array/btrfs.py",
    "harness/raidproof/storage/array/zfs.py",
    # The system disk of each machine is an ext4; kernels must have it built in, and a list of useful modules.
    "harness/raidproof/image/kernel/initramfs.py",
    "harness/raidproof/image/kernel/own.py",
    # The import of an existing server reads its files and the output of its commands, which name file systems.
    "harness/raidproof/existing/",
    "harness/raidproof/cli/import_server.py",
)
"""Modules whose words for file systems are of machines' system disks or of an existing server."""
MACHINES_CLOCK = {
    f"harness/raidproof/guest/{name}.py"
    for name in (
        "ledger_worker",
        "ledger_holders",
        "application_meter",
        "check_agent",
        "assembled",
        "nfsd_threads",
        "release",
        "drive_meter",
    )
}
"""Programs that run in a machine, and stamp or wait by the machine's own clock."""


@lru_cache(maxsize=1)
def nodes_of(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def too_long(path: str, source: str) -> Iterator[str]:
    if len(source.splitlines()) > MAX_LINES:
        yield f"{path}: {len(source.splitlines())} lines, more than {MAX_LINES}"


def vague_name(path: str, _source: str) -> Iterator[str]:
    for part in Path(path).with_suffix("").parts:
        if part in VAGUE:
            yield f"{path}: {part!r} names no thing"


def second_clock(path: str, source: str) -> Iterator[str]:
    if path in {CLOCK, *MACHINES_CLOCK}:
        return
    for node in nodes_of(source):
        match node:
            case ast.Import(names=names) if any(name.name == "time" for name in names):
                yield f"{path}:{node.lineno}: time belongs to raidproof.core.waiting"
            case ast.ImportFrom(module="time"):
                yield f"{path}:{node.lineno}: time belongs to raidproof.core.waiting"
            case ast.Call(func=ast.Attribute(attr="now" | "utcnow" | "today", value=value)) if "date" in ast.unparse(
                value
            ):
                yield f"{path}:{node.lineno}: the date belongs to raidproof.core.waiting"


def shell_string(path: str, source: str) -> Iterator[str]:
    for node in nodes_of(source):
        if isinstance(node, ast.keyword) and node.arg == "shell" and not is_false(node.value):
            yield f"{path}:{node.lineno}: a command is a list of arguments"
        if isinstance(node, ast.Call) and called(node) in SHELLS and ast.unparse(node.func) in SHELLS.values():
            yield f"{path}:{node.lineno}: a command is a list of arguments"


def called(node: ast.Call) -> str:
    """Return the last name of what is called; of an expression without a name nothing."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def unknown_host_key(path: str, source: str) -> Iterator[str]:
    for node in nodes_of(source):
        name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", None)
        if name in {"AutoAddPolicy", "WarningPolicy"}:
            yield f"{path}: host keys are pinned, never accepted"


def second_statistics(path: str, source: str) -> Iterator[str]:
    if path in STATISTICS:
        return
    for node in nodes_of(source):
        match node:
            case ast.Import(names=names):
                modules = [name.name for name in names]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case _:
                continue
        if any(module.partition(".")[0] in {"scipy", "numpy"} for module in modules):
            yield f"{path}:{node.lineno}: scipy and numpy belong to statistics of verdicts and the fit of drives"


def kind_outside(path: str, source: str) -> Iterator[str]:
    """Yield the constants and imports by which a module outside the kinds' folder depends on one file system."""
    if not path.startswith(PACKAGE) or path.startswith((KINDS, *NOT_A_KIND)):
        return
    for node in nodes_of(source):
        match node:
            case ast.Constant(value=str(word)) if word in OF_FILESYSTEM.names:
                yield f"{path}:{node.lineno}: {word!r} belongs to a file in {KINDS}"
            case ast.ImportFrom(names=names) if OF_FILESYSTEM.classes & {one.name for one in names}:
                yield f"{path}:{node.lineno}: the import of one file system belongs to a file in {KINDS}"
            case ast.ImportFrom() | ast.Import() if list(OF_FILESYSTEM.imports(node)):
                yield f"{path}:{node.lineno}: the import of one file system belongs to a file in {KINDS}"


def second_screen(path: str, source: str) -> Iterator[str]:
    if not path.startswith(PACKAGE) or path == TERMINAL:
        return
    for node in nodes_of(source):
        if isinstance(node, ast.Call) and called(node).endswith("Console"):
            yield f"{path}:{node.lineno}: the console is raidproof.core.terminal.Terminal, which escapes texts"


Rule = Callable[[str, str], Iterator[str]]
BROKEN: list[tuple[Rule, str, str]] = [
    (too_long, "harness/x.py", "pass\n" * (MAX_LINES + 1)),
    (vague_name, "harness/utils.py", ""),
    (vague_name, "harness/common/disk.py", ""),
    (second_clock, "harness/x.py", "import time"),
    (second_clock, "harness/x.py", "from time import sleep"),
    (second_clock, "harness/x.py", "import datetime\ndatetime.datetime.now()"),
    (shell_string, "harness/x.py", "subprocess.run('ls', shell=True)"),
    (shell_string, "harness/x.py", "subprocess.run('ls', shell=flag)"),
    (shell_string, "harness/x.py", "os.system('ls')"),
    (unknown_host_key, "harness/x.py", "client.set_missing_host_key_policy(paramiko.AutoAddPolicy())"),
    (unknown_host_key, "harness/x.py", "from paramiko import AutoAddPolicy"),
    (second_statistics, "harness/x.py", "import numpy as np"),
    (second_statistics, "harness/x.py", "from scipy.stats import norm"),
    (second_screen, "harness/raidproof/x.py", "rich.console.Console(stderr=True)"),
    (kind_outside, "harness/raidproof/verdict/x.py", "if spec.type == 'xfs': pass"),
    (kind_outside, "harness/raidproof/verdict/x.py", "LIMITS = {'btrfs': 1}"),
    (kind_outside, "harness/raidproof/verdict/x.py", "from raidproof.storage.filesystem import Ext4Spec"),
    (kind_outside, "harness/raidproof/verdict/x.py", "from raidproof.storage.filesystem import xfs"),
    (kind_outside, "harness/raidproof/verdict/x.py", "from raidproof.storage.filesystem.xfs import parse_info"),
    (kind_outside, "harness/raidproof/verdict/x.py", "import raidproof.storage.filesystem.btrfs"),
]
OF_SOURCES = {second_clock, second_statistics}
"""Rules for the package and its plugin; the others are for all programs."""
RULES = sorted({rule for rule, _, _ in BROKEN}, key=lambda rule: rule.__name__)


@pytest.fixture(scope="module")
def broken() -> dict[Rule, list[str]]:
    """What each rule says of the programs. The loop over the rules is the inner one: each file is parsed once."""
    found = defaultdict[Rule, list[str]](list)
    sources, programs = {*SOURCES}, {*PROGRAMS}
    for path in sorted({*SOURCES, *PROGRAMS}):
        source, name = path.read_text(), str(path.relative_to(HOME))
        for rule in RULES:
            if path in (sources if rule in OF_SOURCES else programs):
                found[rule] += rule(name, source)
    return found


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_kept(rule: Rule, broken: dict[Rule, list[str]]) -> None:
    assert not broken[rule], "\n".join(broken[rule])


@pytest.mark.parametrize(("rule", "path", "source"), BROKEN)
def test_each_rule_finds_a_violation(rule: Rule, path: str, source: str) -> None:
    assert list(rule(path, source))


def lint_imports(home: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    # The folder itself comes first.
    path = os.pathsep.join(map(str, [HOME / "harness", PLUGIN]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def small_house(tmp_path: Path) -> Path:
    shutil.copy(HOME / "pyproject.toml", tmp_path)
    (tmp_path / "raidproof").mkdir()
    (tmp_path / "raidproof_suites").mkdir()
    (tmp_path / "raidproof_suites" / "__init__.py").write_text("import raidproof.core")
    for name in ("__init__", "core", "report", "disk", "workload", "fault"):
        (tmp_path / "raidproof" / f"{name}.py").write_text("")
    return tmp_path


def test_layers_are_kept() -> None:
    ended = lint_imports(HOME)
    assert ended.returncode == 0, ended.stdout


def test_layers_accept_a_downward_import(small_house: Path) -> None:
    (small_house / "raidproof" / "report.py").write_text("import raidproof.disk")
    assert lint_imports(small_house).returncode == 0


@pytest.mark.parametrize(
    ("module", "imported"), [("disk", "report"), ("workload", "fault"), ("fault", "workload"), ("core", "disk")]
)
def test_layers_refuse(small_house: Path, module: str, imported: str) -> None:
    (small_house / "raidproof" / f"{module}.py").write_text(f"import raidproof.{imported}")
    ended = lint_imports(small_house)
    assert ended.returncode == 1
    assert f"raidproof.{module} is not allowed to import raidproof.{imported}" in ended.stdout


def test_the_package_names_no_plugin(small_house: Path) -> None:
    (small_house / "raidproof" / "report.py").write_text("import raidproof_suites")
    ended = lint_imports(small_house)
    assert ended.returncode == 1
    assert "raidproof is not allowed to import raidproof_suites" in ended.stdout


def test_layers_name_a_module_without_a_layer(small_house: Path) -> None:
    (small_house / "raidproof" / "stray.py").write_text("")
    ended = lint_imports(small_house)
    assert ended.returncode == 1
    assert "stray" in ended.stdout
