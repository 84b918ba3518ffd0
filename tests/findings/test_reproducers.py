"""Every reproducer that a finding names is a test, and every patch that it names is a patch of the named module."""

import os
import subprocess
import sys
from pathlib import Path

from raidproof.record.finding import load_findings

HOME = Path(__file__).resolve().parents[2]
FINDINGS = load_findings(HOME / "findings")


def collected(nodes: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--exhaustive", "-p", "no:cacheprovider"]
    path = os.pathsep.join(map(str, (HOME / "harness", HOME / "scenarios" / "suites")))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([*command, *nodes], cwd=HOME, env=environment, capture_output=True, text=True, check=False)


def test_each_reproducer_is_a_test() -> None:
    nodes = sorted({one.reproducer.node for one in FINDINGS if one.reproducer is not None})
    ended = collected(nodes)
    assert ended.returncode == 0, ended.stdout
    assert [line for line in ended.stdout.splitlines() if "::" in line and line in nodes] != []
    assert set(nodes) <= set(ended.stdout.splitlines())


def test_a_reproducer_that_is_no_test_is_found() -> None:
    assert collected(["findings/test_nfsd.py::test_no_such_thing"]).returncode != 0


def test_each_patch_changes_files_of_its_modules_folder() -> None:
    patches = [one.patch for one in FINDINGS if one.patch is not None]
    assert patches
    for patch in patches:
        text = (HOME / "findings" / "patches" / patch.file).read_text()
        changed = [line.removeprefix("+++ b/") for line in text.splitlines() if line.startswith("+++ b/")]
        assert {Path(one).parent for one in changed} == {Path(patch.module).parent}
    named = {patch.file for patch in patches}
    assert named == {path.name for path in (HOME / "findings" / "patches").iterdir()}
