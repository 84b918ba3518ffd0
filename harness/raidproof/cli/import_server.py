"""`raidproof import`: a plan that re-creates an existing server, from its files or over SSH."""

import errno
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raidproof.cli.options import Json
from raidproof.cli.output import emit, say, screen
from raidproof.core.errors import RequestError

if TYPE_CHECKING:
    from raidproof.existing.given import Given
    from raidproof.existing.imported import Imported, ImportedExport
    from raidproof.existing.remote import Readings
    from raidproof.existing.reports import Kind, Text

Files = list[Path] | None


def _file(text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="FILE", help=text)
    return option


def import_server(
    exports: Annotated[Files, _file("/etc/exports of the server, or the directory exports.d; repeatable.")] = None,
    mdadm: Annotated[Files, _file("Output of mdadm --detail of the arrays; repeatable.")] = None,
    examine: Annotated[Files, _file("Output of mdadm --examine of the members; repeatable.")] = None,
    mdstat: Annotated[Files, _file("/proc/mdstat of the server.")] = None,
    lsblk: Annotated[Files, _file("Output of lsblk --json -O of the server.")] = None,
    lvs: Annotated[Files, _file("Output of lvs --all --reportformat=json ... (docs/import.md).")] = None,
    fstab: Annotated[Files, _file("/etc/fstab or /proc/mounts of the server; repeatable.")] = None,
    xfs_info: Annotated[Files, _file("Output of xfs_info of the exported file system.")] = None,
    dumpe2fs: Annotated[Files, _file("Output of dumpe2fs -h of the exported file system.")] = None,
    nfs_conf: Annotated[Files, _file("/etc/nfs.conf, or an older file with RPCNFSDCOUNT; repeatable.")] = None,
    sysfs: Annotated[Files, _file("Output of: grep . /sys/block/*/queue/write_cache and other files of /sys.")] = None,
    client_fstab: Annotated[Files, _file("/etc/fstab or /proc/mounts of a client; repeatable.")] = None,
    ssh: Annotated[
        str | None,
        typer.Option(metavar="[USER@]HOST", help="Read the server over SSH, by commands that only read."),
    ] = None,
    sudo: Annotated[bool, typer.Option("--sudo", help="With --ssh: run the commands as root by sudo.")] = False,
    export: Annotated[
        str | None, typer.Option(metavar="PATH", help="The exported directory; required if there are several.")
    ] = None,
    filesystem: Annotated[
        str | None, typer.Option(metavar="TYPE", help="xfs or ext4 in place of the server's file system.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="PLAN",
            help="File for the plan; an existing directory: one plan of each export.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
) -> None:
    """Make a plan that re-creates an existing server.

    Each value in the plan has its source, and each default its reason. Warnings name settings that endanger
    acknowledged writes or cost speed. With --ssh, the commands are printed before the first of them runs.
    """
    from raidproof.core.layer import one_of  # noqa: PLC0415
    from raidproof.existing.imported import imported  # noqa: PLC0415
    from raidproof.existing.reports import reports_of  # noqa: PLC0415

    if filesystem is not None:
        one_of("--filesystem", filesystem, ("xfs", "ext4"))
    several = output is not None and output.is_dir()
    if output is not None and not several:
        _refuse_existing(output, force)
    given: dict[Kind, Files] = {
        "exports": exports,
        "mdadm": mdadm,
        "examine": examine,
        "mdstat": mdstat,
        "lsblk": lsblk,
        "lvs": lvs,
        "fstab": fstab,
        "xfs-info": xfs_info,
        "dumpe2fs": dumpe2fs,
        "nfs-conf": nfs_conf,
        "sysfs": sysfs,
    }
    texts = list(_texts(given))
    console = screen(json or output is None)
    readings = None
    if ssh is not None:
        readings = _read(ssh, sudo, console)
        texts = [*readings.texts, *texts]
    if not texts:
        raise RequestError("no file of the server is given", remedy="give for example --exports, --mdadm and --lsblk")
    clients = [one for path in client_fstab or () for one in _read_all([path])]
    result = imported(reports_of(texts, clients), export, several=several, filesystem=filesystem)
    if readings is not None:
        result = result.model_copy(update={"commands": readings.commands, "not_read": readings.failed})
    if output is not None:
        _write(result, output, several=several, force=force)
    say(console, _summary(result))
    if json:
        emit(result, as_json=True)
    elif output is None:
        for one in result.exports:
            print(one.plan or "", end="")  # noqa: T201


def _texts(given: "dict[Kind, Files]") -> "Iterator[Text]":
    from raidproof.existing.reports import Text  # noqa: PLC0415

    for kind, paths in given.items():
        for one in _read_all(paths or ()):
            yield Text(kind, one)


def _read_all(paths: Iterable[Path]) -> "Iterator[Given]":
    """Yield the texts of files; of a directory, those of its files *.exports and *.conf by name."""
    from raidproof.existing.given import read_file  # noqa: PLC0415

    for path in paths:
        if path.is_dir():
            yield from (read_file(one) for one in sorted(path.iterdir()) if one.suffix in {".exports", ".conf"})
        else:
            yield read_file(path)


def _read(destination: str, sudo: bool, console: object) -> "Readings":
    from rich.console import Console  # noqa: PLC0415

    from raidproof.core.log import progress  # noqa: PLC0415
    from raidproof.existing.remote import announcement, connection, read_server  # noqa: PLC0415
    from raidproof.provider.hosts.login import HostLogin  # noqa: PLC0415

    user, _, host = destination.rpartition("@")
    if not host or host.startswith("-"):
        raise RequestError(f"--ssh {destination!r}: not [USER@]HOST")
    login = HostLogin(host, user or None, sudo=sudo)
    assert isinstance(console, Console)  # noqa: S101
    say(console, [f"reading {host} by these commands, none of which writes:", *(f"  {one}" for one in announcement())])
    with progress(f"reading {host}"), connection(host, login) as run:
        return read_server(host, run)


def _refuse_existing(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise RequestError(f"{path} already exists", remedy="give another name, or --force to replace it")


def _write(result: "Imported", output: Path, *, several: bool, force: bool) -> None:
    from raidproof.core.files import write_durably  # noqa: PLC0415

    files = _files(result, output) if several else dict.fromkeys([output], result.exports[0])
    for path in files:
        _refuse_existing(path, force)
    for path, one in files.items():
        try:
            write_durably(path, one.plan or "")
        except OSError as error:
            remedy = (
                "free some space" if error.errno == errno.ENOSPC else "name a file in a directory you can write to"
            )
            raise RequestError(f"cannot write {path}: {error.strerror}", remedy=remedy) from error
        one.file = str(path)


def _files(result: "Imported", folder: Path) -> "dict[Path, ImportedExport]":
    """Return the export of each plan by the path of its file; two exports may give their plans the same name."""
    from raidproof.existing.plan_text import name_of  # noqa: PLC0415

    files: dict[Path, ImportedExport] = {}
    for one in result.exports:
        if one.server is not None:
            name = name_of(one.server)
            names = (name, *(f"{name}-{number}" for number in range(2, len(result.exports) + 1)))
            files[next(path for each in names if (path := folder / f"{each}.toml") not in files)] = one
    return files


def _summary(result: "Imported") -> Iterator[str]:
    for command, why in result.not_read.items():
        yield f"not read: {command}: {why}"
    for one in result.exports:
        yield from _about(one)


def _about(one: "ImportedExport") -> Iterator[str]:
    from raidproof.existing.plan_text import SMALL_WRITES  # noqa: PLC0415

    if one.server is None:
        yield f"{one.export}: no plan: {one.refused}"
        return
    facts = one.server.settings
    yield f"{one.export}: {sum(fact.was_read for fact in facts.values())} of {len(facts)} settings were read"
    if (appliance := one.server.appliance) is not None:
        yield f"  layout: {appliance.value} ({appliance.source})"
    for name, why in one.server.defaults.items():
        yield f"  default: {name}: {why}"
    for stand_in in one.server.stand_ins:
        yield f"  in another form: {stand_in}"
    for left_out in one.server.left_out:
        yield f"  not re-created: {left_out}"
    for warning in one.warnings:
        yield from (f"  {line}" for line in warning.lines())
    if one.file is not None:
        yield f"  plan: {one.file}"
        yield "  next:"
        yield f"    ./raidproof run {one.file} --dry-run"
        yield f"    ./raidproof advise {one.file} --workload {SMALL_WRITES} --dry-run"
