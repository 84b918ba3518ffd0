"""The user space of the machines: built once from a declared recipe, and then read-only."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from raidproof.core import command
from raidproof.core.command import Completed
from raidproof.core.errors import RaidproofError, RequestError
from raidproof.core.log import step
from raidproof.core.topology import SoftwareSpec
from raidproof.image import apt, cache, origin, recipe
from raidproof.image.apt import Package
from raidproof.image.origin import Origin
from raidproof.image.recipe import ImageRecipe, names

__all__ = ["DEFAULT", "Image", "get", "names"]

DEFAULT = "debian/trixie"
ASSEMBLE = recipe.RECIPES / "assemble"
ASSEMBLE_DEADLINE_S = 600.0


@dataclass(frozen=True)
class Image:
    """An image that is ready to be a machine's root, below a copy-on-write file."""

    name: str
    """The requested name, with the replaced packages."""
    path: Path
    packages: dict[str, str]
    """The installed versions by package; empty without dpkg and rpm."""
    replaced: dict[str, str] = field(default_factory=dict)
    """The versions of the packages that replace the image's own."""


def get(asked: str | SoftwareSpec = DEFAULT) -> Image:
    """Return an image, by its name or for a machine; build it if needed.

    Raises:
        RequestError: there is no recipe, a package replaces nothing, or the image would lack something; with the
            reason.
        RequirementMissing: a host tool is missing.
        RigError: the build failed: the network, the mirror, a full disk; the message says which.
    """
    software = asked if isinstance(asked, SoftwareSpec) else SoftwareSpec(image=asked)
    name = software.image or DEFAULT
    packages = [apt.read(Path(path).expanduser()) for path in software.packages]
    declared = recipe.load(recipe.find(name))
    start = origin.origin_of(declared)
    apt.refuse_strangers(packages, start.installed, name)
    where = address(declared, packages)
    folder = cache.build("image", where, lambda partial: _build(name, declared, start, packages, partial))
    installed = json.loads((folder / "packages.json").read_text())
    replaced = {one.name: one.version for one in packages}
    words = (f"{one} {version}" for one, version in sorted(replaced.items()))
    return Image(" + ".join((name, *words)), folder / "root.ext4", installed, replaced)


def address(declared: ImageRecipe, packages: Sequence[Package] = ()) -> str:
    """Return the content address: the origin, the packages and files put into it, and the tools that build it."""
    return cache.digest(
        origin.address(declared),
        declared.content(),
        str(declared.size),
        " ".join(declared.programs),
        ASSEMBLE.read_bytes(),
        mkfs_version(),
        *(part for one in sorted(packages, key=lambda one: one.name) for part in (one.name, one.path.read_bytes())),
    )


@lru_cache
def mkfs_version() -> str:
    """Return the version of the tool that makes the file system."""
    return command.run(["mkfs.ext4", "-V"]).stderr


def assemble_command(declared: ImageRecipe, archive: int, scratch: Path, image: int, manifest: int) -> list[str]:
    """Return the command that unpacks an archive, changes it, and makes the image; files are open descriptors."""
    own_ids = [] if os.geteuid() == 0 else ["--user", "--map-root-user", "--map-auto"]
    files = (f"/dev/fd/{archive}", str(scratch), f"/dev/fd/{image}", f"/dev/fd/{manifest}")
    size = f"{declared.size // 1024}k"
    isolated = ["unshare", *own_ids, "--mount", "--propagation", "private", "--"]
    return [*isolated, "sh", str(scratch / "assemble"), *files, size, " ".join(declared.programs)]


def _build(name: str, declared: ImageRecipe, start: Origin, packages: Sequence[Package], partial: Path) -> None:
    step(f"building the guest image {name}")
    scratch = origin.scratch_folder(partial)
    # The script runs under other user ids, which may be unable to reach the user's home or to write into this folder.
    shutil.copyfile(ASSEMBLE, scratch / "assemble")
    (scratch / "guest.tar").write_bytes(declared.content())
    (scratch / "tree").mkdir()
    (scratch / "tree").chmod(0o1777)
    if packages:
        (scratch / "packages").mkdir()
        (scratch / "packages").chmod(0o755)
    for one in packages:
        shutil.copyfile(one.path, scratch / "packages" / f"{one.name}.deb")
    for file in scratch.rglob("*"):
        if file.is_file():
            file.chmod(0o644)
    image, manifest = partial / "root.ext4", partial / "packages"
    with start.archive.open() as archive, image.open("w") as image_file, manifest.open("w") as manifest_file:
        # They are passed as open descriptors, because their folder is closed to other users.
        os.fchmod(image_file.fileno(), 0o666)
        os.fchmod(manifest_file.fileno(), 0o666)
        descriptors = (archive.fileno(), image_file.fileno(), manifest_file.fileno())
        completed = command.follow(
            assemble_command(declared, descriptors[0], scratch, *descriptors[1:]),
            lambda _line: None,
            environment={},
            pass_fds=descriptors,
            deadline_s=ASSEMBLE_DEADLINE_S,
        )
    if not completed.ok:
        raise explain(completed, name, packages, scratch.resolve())
    versions = dict(line.split(maxsplit=1) for line in manifest.read_text().splitlines())
    (partial / "packages.json").write_text(json.dumps(versions))
    manifest.unlink()
    image.chmod(0o444)


def explain(completed: Completed, name: str, packages: Sequence[Package], where: Path) -> RaidproofError:
    """Return an error with the reason, in one line, why an image could not be made."""
    said = completed.stdout
    if lacks := re.findall(r"^lacks: (.+)$", said, re.MULTILINE):
        return RequestError(f"the image {name} lacks {', '.join(lacks)}", remedy="add the packages that have them")
    if "Could not allocate block" in said:
        return RequestError(
            f"what is in the image {name} is more than its size", remedy="give its recipe a larger size"
        )
    if packages:
        files = ", ".join(str(one.path) for one in packages)
        if missing := apt.unmet(said):
            return RequestError(f"{name} with {files}: unmet dependencies: {missing}")
        if refused := apt.refused(said):
            return RequestError(f"{name} with {files}: {refused}")
    return apt.explain(completed, f"building the guest image {name}", where)
