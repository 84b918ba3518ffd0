"""Images: the user space of the machines, built once from a recipe and then read-only."""

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
"""The name of the image that a machine has if no image is requested for it."""
ASSEMBLE = recipe.RECIPES / "assemble"
"""The script that makes a file system image from a tar archive of a root file system."""
ASSEMBLE_DEADLINE_S = 600.0


@dataclass(frozen=True)
class Image:
    """A built image: the read-only root file system under the copy-on-write disks of machines."""

    name: str
    """The requested name, followed by the replaced packages: ``debian/trixie + mdadm 4.5-1``."""
    path: Path
    """The file of the ext4 file system."""
    packages: dict[str, str]
    """The installed versions by package name; empty if the image has neither dpkg nor rpm."""
    replaced: dict[str, str] = field(default_factory=dict)
    """The versions, by package name, of the packages that replace packages of the recipe."""


def get(asked: str | SoftwareSpec = DEFAULT) -> Image:
    """Return the image that ``asked`` names, with its replaced packages; build the image if the cache lacks it.

    Raises:
        RequestError: no recipe has this name, a package replaces no package of the image, a dependency is not
            satisfied, or the image lacks a program that its recipe requires.
        RequirementMissing: this host lacks a program for building the image.
        RigError: the network or the mirror fails, or the disk is full.
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
    """Return the cache address of an image: a digest of its origin, packages and files, and the build's programs."""
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
    """Return the version that mkfs.ext4 of this host prints."""
    return command.run(["mkfs.ext4", "-V"]).stderr


def assemble_command(declared: ImageRecipe, archive: int, scratch: Path, image: int, manifest: int) -> list[str]:
    """Return the command that runs vms/images/assemble, which makes an image from the archive of a root.

    ``archive``, ``image`` and ``manifest`` (the list of installed packages) are descriptors of open files.
    """
    own_ids = [] if os.geteuid() == 0 else ["--user", "--map-root-user", "--map-auto"]
    files = (f"/dev/fd/{archive}", str(scratch), f"/dev/fd/{image}", f"/dev/fd/{manifest}")
    size = f"{declared.size // 1024}k"
    isolated = ["unshare", *own_ids, "--mount", "--propagation", "private", "--"]
    return [*isolated, "sh", str(scratch / "assemble"), *files, size, " ".join(declared.programs)]


def _build(name: str, declared: ImageRecipe, start: Origin, packages: Sequence[Package], partial: Path) -> None:
    step(f"building the guest image {name}")
    scratch = origin.scratch_folder(partial)
    # The script runs with subordinate user ids, which may have no access to the user's home and to ``partial``.
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
        # The script gets descriptors, because its user ids cannot open files in this folder.
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
    """Return the error for a failed run of vms/images/assemble, with the reason in one line.

    ``name`` is the name of the image, ``packages`` the .deb files to install, ``where`` the folder of the build.
    """
    output = completed.stdout
    if lacks := re.findall(r"^lacks: (.+)$", output, re.MULTILINE):
        return RequestError(
            f"the image {name} lacks {', '.join(lacks)}",
            remedy=f"add packages with these programs to the recipe of {name}",
        )
    if "Could not allocate block" in output:
        return RequestError(
            f"the files of image {name} need more space than its size",
            remedy=f"set a larger size in the recipe of {name}",
        )
    if packages:
        files = ", ".join(str(one.path) for one in packages)
        if missing := apt.unmet(output):
            return RequestError(f"image {name} with {files}: unmet dependencies: {missing}")
        if refused := apt.refused(output):
            return RequestError(f"image {name} with {files}: {refused}")
    return apt.explain(completed, f"building the guest image {name}", where)
