"""An installed distribution, as `importlib.metadata` finds one: modules and entry points in a folder."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import raidproof


def install(folder: Path, name: str, modules: Mapping[str, str], entry_points: Mapping[str, str]) -> None:
    """Install a distribution into a folder: its modules by name, one entry point by its group."""
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = "".join(f"[{group}]\n{name} = {value}\n" for group, value in entry_points.items())
    (about / "entry_points.txt").write_text(points)


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with this distribution installed beside raidproof."""
    path = os.pathsep.join([str(folder), str(Path(raidproof.__file__).parents[1])])
    return subprocess.run(
        [sys.executable, "-P", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120"},
        check=False,
    )
