"""The origin of an image: a tar archive of a root file system, made from a Debian suite or given by the user."""

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
"""Bytes that a build needs in its working folder for the packages and the unpacked root."""
PHASES = {
    "running apt-get update": "fetching the list of packages",
    "downloading packages": "downloading packages",
    "extracting archives": "extracting",
    "installing essential": "installing the essential packages",
    "installing remaining": "installing the other packages",
    "creating tarball": "packing",
}
"""The start of each progress message of mmdebstrap, and the text that raidproof shows for it."""
STATUS = "var/lib/dpkg/status"
"""The path, in the archive of a root file system, of dpkg's list of installed packages."""
_PACKED: Mapping[bytes, Callable[[Path], BufferedIOBase]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
"""The class that reads a compressed file, by the magic bytes at the beginning of the file."""
_ZSTD = b"\x28\xb5\x2f\xfd"
"""The magic bytes at the beginning of a file that zstd has compressed."""


@dataclass(frozen=True)
class Origin:
    """A root file system before raidproof's files and replaced packages are added."""

    archive: Path
    """The root file system as an uncompressed tar archive."""
    installed: Mapping[str, Installed]
    """The packages that dpkg lists in the archive, by name; empty for a root without dpkg."""


def origin_of(declared: ImageRecipe) -> Origin:
    """Return the origin of a recipe's image; make it if the cache lacks it.

    Raises:
        RequestError: the file ``root`` of the recipe is not a tar archive, or is compressed with zstd.
        RequirementMissing: this host lacks a program, or space, for making the archive.
        RigError: the network or the mirror fails, or the disk is full.
    """
    build = _given if declared.root else _debian
    folder = cache.build("root", address(declared), lambda partial: build(declared, partial))
    known = json.loads((folder / "packages.json").read_text())
    return Origin(folder / "root.tar", {name: Installed(**one) for name, one in known.items()})


def address(declared: ImageRecipe) -> str:
    """Return the cache address of an origin.

    The address is a digest of the content of the file ``root`` in the recipe; without ``root``, a digest of the Debian
    suite, its components, the packages and the version of mmdebstrap.
    """
    if declared.root:
        status = declared.root.stat()
        return cache.digest("root", _digest(declared.root, status.st_size, status.st_mtime_ns))
    suite = " ".join((str(declared.suite), *declared.components))
    return cache.digest("suite", suite, *declared.packages, mmdebstrap_version())


@lru_cache
def _digest(path: Path, _size: int, _changed_ns: int) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@lru_cache
def mmdebstrap_version() -> str:
    """Return the version of mmdebstrap on this host; cached, because Perl starts slowly."""
    return command.succeed(["mmdebstrap", "--version"])


def mmdebstrap_command(declared: ImageRecipe, source: apt.Source, options: Path, archive: Path) -> list[str]:
    """Return the mmdebstrap command that makes ``archive``; ``options`` is a file for apt.conf(5)."""
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
    argv = mmdebstrap_command(declared, apt.source(str(declared.suite), declared.components), options, archive)
    if os.geteuid() == 0:
        # In a mount namespace, because a mount of the host's /dev that remains in the tree would be removed with it.
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
        raise RequestError(f"{root} is compressed with zstd", remedy=f"decompress it: zstd -d {root}")
    opener = next((opener for start, opener in _PACKED.items() if magic.startswith(start)), None)
    try:
        with opener(root) if opener else root.open("rb") as packed, archive.open("wb") as plain:
            shutil.copyfileobj(packed, plain, MIB)
        _describe(archive, partial)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise RequestError(f"{root} is not a tar archive of a root file system: {error}") from error


def _describe(archive: Path, partial: Path) -> None:
    """Write the archive's packages into packages.json; make the archive readable for all users of this host."""
    installed: dict[str, Installed] = {}
    with tarfile.open(archive) as members:
        for member in members:
            if member.name.removeprefix("./") == STATUS and (file := members.extractfile(member)):
                installed = parse_status(file.read().decode(errors="replace"))
    known = {name: asdict(one) for name, one in installed.items()}
    (partial / "packages.json").write_text(json.dumps(known))
    archive.chmod(0o644)


def scratch_folder(partial: Path) -> Path:
    """Return a working folder for a build, which subordinate user ids can reach; the partial artefact links to it.

    Raises:
        RequirementMissing: neither TMPDIR nor /tmp nor /var/tmp has `ROOM_BYTES` of free space.
    """
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
        f"no room to build the guest image in {' or '.join(map(str, dict.fromkeys(candidates)))}: "
        f"{ROOM_BYTES // MIB} MiB are needed",
        remedy="free space in one of these folders, or set TMPDIR to a folder with enough free space",
    )
