"""The user's own kernels of User-mode Linux: a folder that `kernel build` made, or a binary and its modules."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import DeadlineExceeded, RequestError
from raidproof.core.log import say
from raidproof.core.scratch import scratch_folder
from raidproof.image import cache
from raidproof.image.kernel import catalogue, initramfs, pc, uml
from raidproof.image.kernel.catalogue import Kernel
from raidproof.image.kernel.initramfs import ModuleFolder

RECIPE_VERSION = "1"
"""Part of the cache address: increase it when the result of `_prepare` changes."""
DESCRIPTION = "kernel.json"
"""The file of a folder that `kernel build` made, with the kernel's release and source."""
VERSION_DEADLINE_S = 10.0
BUILT_IN = {"ext4": "CONFIG_EXT4_FS", "virtio_uml": "CONFIG_VIRTIO_UML"}
"""Features that must be built in, because the kernel mounts its root file system before it can load modules."""
REQUIRED = {
    "virtio_blk": "CONFIG_VIRTIO_BLK",
    "md_mod": "CONFIG_BLK_DEV_MD",
    "nfsd": "CONFIG_NFSD",
    "nfs": "CONFIG_NFS_FS",
    "nfsv4": "CONFIG_NFS_V4",
}
"""Modules without which no lab starts, and their options; they may be built in."""
USEFUL = {
    "raid0": "CONFIG_MD_RAID0",
    "raid1": "CONFIG_MD_RAID1",
    "raid10": "CONFIG_MD_RAID10",
    "raid456": "CONFIG_MD_RAID456",
    "xfs": "CONFIG_XFS_FS",
    "nfsv3": "CONFIG_NFS_V3",
    "ifb": "CONFIG_IFB",
    "sch_prio": "CONFIG_NET_SCH_PRIO",
    "sch_netem": "CONFIG_NET_SCH_NETEM",
    "sch_tbf": "CONFIG_NET_SCH_TBF",
    "sch_ingress": "CONFIG_NET_SCH_INGRESS",
    "cls_u32": "CONFIG_NET_CLS_U32",
    "cls_matchall": "CONFIG_NET_CLS_MATCHALL",
    "act_gact": "CONFIG_NET_ACT_GACT",
    "act_mirred": "CONFIG_NET_ACT_MIRRED",
}
"""Modules that some labs need: RAID levels, file systems, versions of NFS, conditions of a link."""
BUILD = "raidproof kernel build TREE builds a kernel that has what a lab needs"


def get(path: Path, modules: str | None = None) -> Kernel:
    """Return the kernel in a folder that `kernel build` made, or a binary of User-mode Linux with its modules.

    ``modules`` is, for a binary, the folder of its modules; for a folder, a folder of modules that replace those of
    the same names.

    Raises:
        RequestError: the kernel does not exist, is not User-mode Linux, has modules of another release, or lacks a
            module or a dependency that every lab needs.
        RequirementMissing: this host lacks a program for preparing the kernel.
        RigError: the kernel does not run on this host.
    """
    folder, image = path, path / "modules.ext4"
    if (path / DESCRIPTION).is_file():
        release = str(json.loads((path / DESCRIPTION).read_text())["release"])
        if modules is not None:
            image = uml.with_modules(image, release, Path(modules))
    elif path.is_file():
        release = release_of(path)
        folder = _prepared(path, release, modules)
        image = folder / "modules.ext4"
    else:
        raise RequestError(
            f"there is no kernel {path}",
            remedy="name a binary of User-mode Linux, a folder that raidproof kernel build printed, or a kernel of "
            f"the catalogue such as {catalogue.DEFAULT}",
        )
    binary, arguments = folder / "linux", arguments_of(folder / "linux")
    preload = catalogue.preload_for(str(path), binary, arguments)
    return Kernel(
        name=str(path),
        release=release,
        binary=binary,
        modules_image=image,
        environment={"LD_PRELOAD": str(preload)} if preload else {},
        arguments=arguments,
    )


def release_of(binary: Path) -> str:
    """Return the release of a binary of User-mode Linux, which prints it for ``--version``.

    Raises:
        RequestError: the file is not such a binary, or does not run on this host.
    """
    completed = None
    with binary.open("rb") as file:
        elf = file.read(4) == b"\x7fELF"
    try:
        completed = command.run([binary.absolute(), "--version"], deadline_s=VERSION_DEADLINE_S) if elf else None
    except (OSError, DeadlineExceeded):
        completed = None
    found = re.fullmatch(r"\d+\.\d+\S*", completed.stdout.strip()) if completed is not None and completed.ok else None
    if found is None:
        why = f": {completed.stderr.strip().splitlines()[-1]}" if completed and completed.stderr.strip() else ""
        raise RequestError(
            f"{binary} is not a kernel of User-mode Linux that runs on this host{why}",
            remedy="build it with ARCH=um (raidproof kernel build TREE), or use provider qemu for a bzImage",
        )
    return found[0]


def arguments_of(binary: Path) -> tuple[str, ...]:
    """Return the kernel arguments that make a binary run processes by seccomp(2), which is faster than ptrace(2).

    The result is empty if the binary cannot do this.
    """
    known = command.run([binary, "--help"], deadline_s=VERSION_DEADLINE_S).stdout
    return ("seccomp=on",) if re.search(r"^seccomp=<", known, re.MULTILINE) else ()


def _prepared(binary: Path, release: str, modules: str | None) -> Path:
    if modules is None:
        raise RequestError(
            f"kernel {binary} needs the folder of its modules, even if all are built in",
            remedy="make ARCH=um modules_install INSTALL_MOD_PATH=DIR, then name it with --modules DIR",
        )
    folder = pc.find_modules(Path(modules).expanduser(), release)
    address = cache.digest(RECIPE_VERSION, binary.read_bytes(), pc.fingerprint(folder))

    def prepare(partial: Path) -> None:
        require_modules(str(binary), binary, folder, release)
        tree = partial / cache.SCRATCH / "lib" / "modules"
        pc.copy_modules(folder, tree / release)
        initramfs.index(partial / cache.SCRATCH, release)
        initramfs.make_image(tree, partial / "modules.ext4")
        shutil.copyfile(binary, partial / "linux")
        (partial / "linux").chmod(0o755)

    return cache.build("kernel", address, prepare)


def require_modules(name: str, binary: Path, folder: Path, release: str) -> None:
    """Check that a kernel has the modules of every lab, that their dependencies exist, and that their symbols resolve.

    ``name`` is the kernel's name for messages, ``folder`` its ``lib/modules/RELEASE``.

    Raises:
        RequestError: a module, a dependency or a symbol is missing, or a module is for another release.
        RequirementMissing: this host lacks depmod.
    """
    have = ModuleFolder(folder)
    absent = [f"{one} ({option}=y)" for one, option in BUILT_IN.items() if one not in have.builtin]
    absent += [f"{one} ({option})" for one, option in REQUIRED.items() if not have.has(one)]
    if absent:
        raise RequestError(f"kernel {name} lacks {', '.join(absent)}; modules: {folder}", remedy=BUILD)
    for file in sorted(folder.rglob("*.ko")):
        if (found := initramfs.release_of(file.read_bytes())) != release:
            raise RequestError(f"{file} was built for kernel {found}, not {release}")
    if unmet := have.unmet():
        raise RequestError(
            f"modules of kernel {name} lack their dependencies: " + "; ".join(unmet),
            remedy=f"add the missing modules to {folder}, or build them in",
        )
    if unknown := unresolved(binary, folder, release):
        raise RequestError(
            f"modules of kernel {name} need symbols that neither the kernel nor another module has: "
            + "; ".join(unknown),
            remedy="build kernel and modules from one tree with one configuration",
        )
    if lesser := [f"{one} ({option})" for one, option in USEFUL.items() if not have.has(one)]:
        say(f"kernel {name} lacks {', '.join(lesser)}: a lab that needs one of these will fail")


def unresolved(binary: Path, folder: Path, release: str) -> Sequence[str]:
    """Return the symbols that modules need and neither the kernel nor another module exports; empty if not known.

    They are not known if the binary has no symbol table.
    """
    listed = command.run(["nm", binary])
    if not listed.ok or " __ksymtab_" not in listed.stdout:
        return ()
    with scratch_folder("depmod") as scratch:
        symbols, base = scratch / "symbols", scratch / "lib" / "modules"
        symbols.write_text(listed.stdout)
        base.mkdir(parents=True)
        (base / release).symlink_to(folder.resolve())
        words: list[str | Path] = ["depmod", "-n", "-e", "-F", symbols, "-b", scratch, release]
        completed = command.run(words, deadline_s=300)
    return [
        f"{Path(found[1]).name}: {found[2]}"
        for found in re.finditer(r"(\S+\.ko\S*) needs unknown symbol (\S+)", completed.stderr)
    ]
