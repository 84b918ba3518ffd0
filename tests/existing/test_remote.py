"""Reading a server over SSH: OpenSSH's server on loopback, which records each command that it is to run."""

import hashlib
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from raidproof.cli import import_server
from raidproof.cli.main import main
from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError, Status
from raidproof.existing import remote
from raidproof.existing.remote import FIXED, announcement, connection, read_server, sysfs_command
from raidproof.existing.reports import reports_of
from raidproof.existing.server import server_of
from raidproof.machine.login import LabLogin
from raidproof.provider.hosts import login as logins
from raidproof.provider.hosts.login import HostLogin
from tests.existing.servers import SERVERS
from tests.machine.test_transport import KEYS
from tests.machine.test_transport import Server as SilentServer
from tests.provider.hosts.test_login import Server, needs_sshd, server  # noqa: F401  a fixture

SET = SERVERS / "debian-13-raid10-nvme-xfs"
READING = {"cat", "grep", "lsblk", "lvs", "mdadm", "xfs_info", "dumpe2fs"}
"""The programs that the closed list contains; mdadm only with --detail, dumpe2fs only with -h, lvs only readonly."""
# Stands for the login shell of the server: records the command, and runs it on the files of a folder. Every other
# program than those of the list fails.
SHELL = """\
import json, os, pathlib, shlex, subprocess, sys
root = pathlib.Path({root!r})
command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
with open({record!r}, "a") as file:
    file.write(json.dumps(command) + "\\n")
words = shlex.split(command)
output = root / ".outputs" / words[0]
if output.exists():
    sys.stdout.write(output.read_text())
elif words[0] in ("cat", "grep"):
    words = [str(root) + word if word.startswith("/") else word for word in words]
    ended = subprocess.run(words, capture_output=True, text=True)
    sys.stdout.write(ended.stdout.replace(str(root), ""))
    sys.exit(ended.returncode)
else:
    sys.stderr.write(words[0] + ": not found\\n")
    sys.exit(127)
"""


@dataclass
class FileServer:
    """The files of a server in a folder, behind an SSH server."""

    root: Path
    record: Path
    config: Path

    def commands(self) -> list[str]:
        return [json.loads(line) for line in self.record.read_text().splitlines()]

    def state(self) -> dict[str, tuple[str, int]]:
        """Return digest and time of change of each file."""
        files = sorted(path for path in self.root.rglob("*") if path.is_file())
        return {str(one): (hashlib.sha256(one.read_bytes()).hexdigest(), one.stat().st_mtime_ns) for one in files}


@pytest.fixture
def fileserver(server: Server, tmp_path: Path) -> FileServer:  # noqa: F811
    root, record = tmp_path / "root", tmp_path / "record"
    files = {
        "etc/exports": (SET / "exports").read_text(),
        "etc/fstab": (SET / "fstab").read_text(),
        "etc/nfs.conf": "[nfsd]\nthreads=32\n",
        "proc/mounts": "/dev/md0 /srv/vm xfs rw,noatime,inode64,logbufs=8,logbsize=32k,sunit=1024,swidth=2048 0 0\n",
        "proc/mdstat": "Personalities : [raid10]\nmd0 : active raid10 nvme0n1[0]\n      1 blocks [4/4] [UUUU]\n",
        "proc/fs/nfsd/threads": "48\n",
        "sys/block/md0/md/mismatch_cnt": "0\n",
        "sys/block/nvme0n1/queue/write_cache": "write through\n",
        ".outputs/lsblk": (SET / "lsblk.json").read_text(),
        ".outputs/mdadm": (SET / "mdadm.txt").read_text(),
        ".outputs/xfs_info": (SET / "xfs_info.txt").read_text(),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    record.touch()
    shell = tmp_path / "shell.py"
    shell.write_text(SHELL.format(root=str(root), record=str(record)))
    # OpenSSH runs this command in place of each that the client requests.
    with (server.folder / "sshd").open("a") as file:
        file.write(f"ForceCommand {sys.executable} {shell}\n")
    return FileServer(root, record, server.configure())


@needs_sshd
def test_only_the_listed_commands_run_and_no_file_changes(fileserver: FileServer) -> None:
    before = fileserver.state()
    with connection("storage", HostLogin("storage", config=fileserver.config)) as run:
        readings = read_server("storage", run)
    assert fileserver.state() == before
    commands = fileserver.commands()
    assert commands == readings.commands
    fixed = {shlex.join(argv) for _, argv in FIXED}
    disks = [f"nvme{number}n1" for number in range(4)]
    assert set(commands) - fixed == {
        "mdadm --detail /dev/md0",
        "xfs_info /dev/md0",
        shlex.join(sysfs_command(disks, ["md0"])),
    }
    assert {shlex.split(command)[0] for command in commands} <= READING
    found = server_of(reports_of(readings.texts), "/srv/vm")
    assert found.settings["level"].value == "10"
    assert (found.settings["threads"].value, found.settings["su"].value) == (48, 524288)
    assert found.settings["mount_options"].value == "noatime,inode64,logbufs=8,logbsize=32k"
    assert "storage: mdadm --detail /dev/md0:1" in str(found.settings["chunk"].source)


@needs_sshd
def test_the_command_lists_all_commands_before_it_reads(
    fileserver: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        logins, "HostLogin", lambda host, user, sudo: HostLogin(host, user, sudo=sudo, config=fileserver.config)
    )
    plan = tmp_path / "plan.toml"
    assert main(["import", "--ssh", "storage", "-o", str(plan), "--json"]) == Status.PASS
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert record["commands"] == fileserver.commands()
    assert "cat /etc/nfs.conf" in captured.err
    assert captured.err.index("none of which writes") < captured.err.index("settings were read")
    assert "grep -rsH '--include=*.exports' '' /etc/exports.d" in record["not_read"]
    assert plan.exists()
    assert import_server.import_server.__doc__


@needs_sshd
def test_an_unknown_host_key_is_refused(fileserver: FileServer, server: Server) -> None:  # noqa: F811
    (server.folder / "known").write_text("")
    with (
        pytest.raises(RequestError, match="not in known_hosts"),
        connection("storage", HostLogin("storage", config=fileserver.config)) as run,
    ):
        read_server("storage", run)
    assert fileserver.commands() == []


def test_a_server_that_never_starts_a_command_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "COMMAND_DEADLINE_S", 0.3)
    with closing(SilentServer(KEYS.host)) as silent:
        login = LabLogin("10.77.0.10", KEYS, silent.socket)
        with pytest.raises(RigError, match="cannot start: 'fall silent'"), connection("storage", login) as run:
            run(["fall silent"])


def test_the_announcement_has_every_command() -> None:
    lines = announcement()
    assert all(shlex.join(argv) in lines for _, argv in FIXED)
    assert "mdadm --detail /dev/ARRAY" in lines
    assert {shlex.split(line)[0] for line in lines} == READING


class Hostile:
    """A server that reports names from which no command may be made."""

    def __init__(self) -> None:
        self.commands: list[Sequence[str]] = []

    def __call__(self, argv: Sequence[str]) -> Completed:
        self.commands.append(argv)
        names = ("-e", "x;reboot", "a b", "$(reboot)", "../../etc", "ok0")
        devices = [
            {"name": name, "type": "disk", "children": [{"name": f"md{name}", "fstype": "xfs", "mountpoint": "/x"}]}
            for name in names
        ]
        mdstat = "".join(f"md{name.replace(' ', '')} : active raid1 sda[0]\n  1 blocks [1/1] [U]\n" for name in names)
        outputs = {
            "lsblk": json.dumps({"blockdevices": devices}),
            "cat": f"Personalities : [raid1]\n{mdstat}" if argv[-1] == "/proc/mdstat" else "",
        }
        return Completed(tuple(argv), 0, outputs.get(argv[0], ""), "")


def names_in(commands: Sequence[Sequence[str]]) -> Iterator[str]:
    fixed = {argv for _, argv in FIXED}
    for argv in commands:
        if tuple(argv) not in fixed:
            yield from (word for word in argv if word.startswith(("/dev/", "/sys/block/")))


def test_a_name_that_is_not_plain_is_in_no_command() -> None:
    hostile = Hostile()
    read_server("storage", hostile)
    found = {word.split("/")[3 if word.startswith("/sys") else 2] for word in names_in(hostile.commands)}
    assert found == {"ok0", "mdok0", "md-e", "mdab"}
    assert all(remote.NAME.fullmatch(name) for name in found)


def test_a_server_that_reports_nothing_is_refused() -> None:
    with pytest.raises(RequestError, match="no command printed anything: denied"):
        read_server("storage", lambda argv: Completed(tuple(argv), 1, "", "denied"))


@pytest.mark.parametrize("destination", ["", "user@", "-oProxyCommand=x"])
def test_a_destination_that_is_no_host_is_refused(destination: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", f"--ssh={destination}"]) == Status.BAD_REQUEST
    assert "not [USER@]HOST" in capsys.readouterr().err
