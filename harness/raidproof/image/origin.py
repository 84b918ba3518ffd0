"""The origin of an image: an archive of a whole root, from a Debian suite or from a user's file."""

import bz2
import gzip
import json
import lzma
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import file_digest
from io import BufferedIOBase
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RequestError, RequirementMissing
from raidproof.core.log import step
from raidproof.core.units import MIB
from raidproof.image import apt, cache
from raidproof.image.apt import Installed, parse_status
from raidproof.image.recipe import ImageRecipe

BUILD_DEADLINE_S = 1500.0
ROOM_BYTES = 900 * MIB
"""Bytes that a build needs in its working folder: the packages and the tree."""
PHASES = {
    "running apt-get update": "fetching the list of packages",
    "downloading packages": "downloading packages",
    "extracting archives": "extracting",
    "installing essential": "installing the essential packages",
    "installing remaining": "installing the other packages",
    "creating tarball": "packing",
}
"""Beginnings of mmdebstrap's progress messages, and the text shown for each."""
STATUS = "var/lib/dpkg/status"
_PACKED: Mapping[bytes, Callable[[Path], BufferedIOBase]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
"""Magic bytes of a compressed archive, and its reader."""
_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Origin:
    """The content of an image before it is built: the archive, and the packages that dpkg lists in it."""

    archive: Path
    installed: Mapping[str, Installed]
    """By package; empty for a root without dpkg."""


def origin_of(declared: ImageRecipe) -> Origin:
    """Return the origin of a recipe's image; fetch it if needed.

    Raises:
        RequestError: the given root is not an archive.
        RequirementMissing: a host tool is missing.
        RigError: the network, the mirror, or a full disk; the message says which.
    """
    build = _given if declared.root else _debian
    folder = cache.build("root", address(declared), lambda partial: build(declared, partial))
    known = json.loads((folder / "packages.json").read_text())
    return Origin(folder / "root.tar", {name: Installed(**one) for name, one in known.items()})


def address(declared: ImageRecipe) -> str:
    """Return the content address of the archive: of the file itself, or of its inputs and the tool that makes it."""
    if declared.root:
        status = declared.root.stat()
        return cache.digest("root", _digest(declared.root, status.st_size, status.st_mtime_ns))
    return cache.digest("suite", str(declared.suite), *declared.packages, mmdebstrap_version())


@lru_cache
def _digest(path: Path, _size: int, _changed_ns: int) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@lru_cache
def mmdebstrap_version() -> str:
    """Return the version of the tool that makes the tree; cached, because perl starts slowly."""
    return command.succeed(["mmdebstrap", "--version"])


def mmdebstrap_command(declared: ImageRecipe, source: apt.Source, options: Path, archive: Path) -> list[str]:
    """Return the command that makes the archive."""
    excluded = ("doc", "man", "info", "locale", "zoneinfo")
    return [
        "mmdebstrap",
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=minbase",
        "--format=tar",
        "--architectures=amd64",
        f"--include={','.join(declared.packages)}",
        f"--aptopt={options}",
        '--aptopt=Apt::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in excluded),
        str(declared.suite),
        str(archive),
        source.line,
    ]


def _debian(declared: ImageRecipe, partial: Path) -> None:
    step(f"fetching the guest image's packages from Debian {declared.suite}")
    scratch = scratch_folder(partial)
    options, archive = scratch / "apt.conf", partial / "root.tar"
    options.write_text("\n".join(apt.acquire_options()) + "\n")
    argv = mmdebstrap_command(declared, apt.source(str(declared.suite)), options, archive)
    if os.geteuid() == 0:
        # Mounts in the tree must not outlive the build: a later removal of the tree would reach the host's /dev.
        argv = ["unshare", "--mount", "--propagation", "private", "--", *argv]
    environment = {"LC_ALL": "C", "TMPDIR": str(scratch)}
    completed = command.follow(argv, _show, environment=environment, deadline_s=BUILD_DEADLINE_S)
    if not completed.ok:
        raise apt.explain(completed, "building the guest image", scratch.resolve())
    _describe(archive, partial)


def _show(line: str) -> None:
    phase = next((shown for start, shown in PHASES.items() if line.startswith(f"I: {start}")), None)
    if phase is not None:
        step(f"guest image: {phase}")


def _given(declared: ImageRecipe, partial: Path) -> None:
    root, archive = Path(str(declared.root)), partial / "root.tar"
    step(f"unpacking {root}")
    with root.open("rb") as file:
        magic = file.read(8)
    if magic.startswith(_ZSTD):
        raise RequestError(f"{root} is compressed with zstd", remedy=f"unpack it first: zstd -d {root}")
    opener = next((opener for start, opener in _PACKED.items() if magic.startswith(start)), None)
    try:
        with opener(root) if opener else root.open("rb") as packed, archive.open("wb") as plain:
            shutil.copyfileobj(packed, plain, MIB)
        _describe(archive, partial)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise RequestError(f"{root} is no tar archive of a root: {error}") from error


def _describe(archive: Path, partial: Path) -> None:
    """Record the archive's packages, and make it world-readable: the next step runs as another user."""
    installed: dict[str, Installed] = {}
    with tarfile.open(archive) as members:
        for member in members:
            if member.name.removeprefix("./") == STATUS and (file := members.extractfile(member)):
                installed = parse_status(file.read().decode(errors="replace"))
    known = {name: asdict(one) for name, one in installed.items()}
    (partial / "packages.json").write_text(json.dumps(known))
    archive.chmod(0o644)


def scratch_folder(partial: Path) -> Path:
    """Return a working folder that the build's user ids can reach, linked from the partial artefact."""
    link = partial / cache.SCRATCH
    if os.geteuid() == 0:
        link.mkdir()
        return link
    candidates = [Path(os.environ.get("TMPDIR") or "/tmp"), Path("/tmp"), Path("/var/tmp")]  # noqa: S108
    for parent in candidates:
        if parent.is_dir() and shutil.disk_usage(parent).free > ROOM_BYTES:
            folder = Path(tempfile.mkdtemp(prefix="raidproof-build-", dir=parent))
            link.symlink_to(folder)
            folder.chmod(0o711)
            return folder
    raise RequirementMissing(
        f"no room to build the guest image in {' or '.join(map(str, dict.fromkeys(candidates)))}",
        remedy=f"free {ROOM_BYTES // MIB} MiB there, or set TMPDIR",
    )
