"""The launcher on a fake machine: a separate PATH, and a folder with only the files that the launcher reads."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from raidproof.core.waiting import Deadline, wait_until

HOME = Path(__file__).resolve().parents[1]
REAL = (
    "sh",
    "env",
    "cat",
    "sed",
    "tr",
    "tail",
    "readlink",
    "mkdir",
    "cksum",
    "flock",
    "rm",
    "ln",
    "mv",
    "sleep",
    "touch",
)
# Stands for python3: says its path, makes an "environment" of itself, and plays pip and the harness.
PYTHON = """#!/bin/sh
case "$*" in
*version_info*) echo "$0" ;;
*ensurepip*) exit ${NO_ENSUREPIP:-0} ;;
*'-m venv '*) mkdir -p "$3/bin" && ln -s "$FAKES/python3" "$3/bin/python" ;;
*'-m pip '*)
    echo "$*" >>"$FAKES/pip.calls"
    [ -z "${PIP_HANGS-}" ] || { touch "$FAKES/hanging"; exec sleep 60; }
    [ -z "${PIP_FAILS-}" ] || { echo 'ERROR: no index in sight'; exit 1; }
    ;;
*'-m raidproof '*)
    [ -z "${RUN_LASTS-}" ] || { touch "$FAKES/running"; exec sleep 60; }
    echo "harness: $*"
    ;;
esac
"""
APT = """#!/bin/sh
echo "$*" >>"$FAKES/apt.calls"
case "$*" in
*install*) [ -z "${APT_FAILS-}" ] || { echo "E: Unable to locate package nbdkit"; exit 100; }
    for tool in ${APT_BRINGS-}; do ln -s /bin/true "$FAKES/$tool"; done ;;
esac
"""
DNF = """#!/bin/sh
echo "$*" >>"$FAKES/dnf.calls"
[ -z "${DNF_FAILS-}" ] || { echo "Error: Unable to find a match: nbdkit"; exit 1; }
for tool in ${DNF_BRINGS-}; do ln -s /bin/true "$FAKES/$tool"; done
for package in ${DNF_INSTALLS-}; do echo "$package" >>"$FAKES/rpms"; done
"""
RPM = """#!/bin/sh
for name; do :; done
while read -r package; do [ "$package" != "$name" ] || exit 0; done <"$FAKES/rpms"
exit 1
"""
PACMAN = """#!/bin/sh
echo "$*" >>"$FAKES/pacman.calls"
case "$*" in
--query*) [ "$2" = glibc ] ;;
*) for tool in ${PACMAN_BRINGS-}; do ln -s /bin/true "$FAKES/$tool"; done ;;
esac
"""
DPKG = """#!/bin/sh
printf 'libc6-dev/installed zlib/config-files '
"""


class Machine:
    """A fake machine with a checkout on it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "the house"
        self.fakes = root / "bin"
        self.fakes.mkdir()
        (self.home / "vms").mkdir(parents=True)
        shutil.copy(HOME / "raidproof", self.home)
        self.projects = [self.home / "pyproject.toml", self.home / "scenarios" / "suites" / "pyproject.toml"]
        self.projects[1].parent.mkdir(parents=True)
        for project in self.projects:
            project.write_text("[project]")
        self.packages("nbdkit  nbdkit  # why\nlibc6-dev  -  # why\n")
        (self.home / "vms" / "host-packages-test.txt").write_text("shellcheck  shellcheck  # why\n")
        (self.home / "vms" / "host-packages-wire.txt").write_text("tshark  tshark  # why\n")
        (self.home / "vms" / "host-packages-vagrant.txt").write_text("vagrant  vagrant  # why\n")
        (self.home / "vms" / "host-packages-qemu.txt").write_text("qemu-img  qemu-img  # why\n")
        shutil.copy(HOME / "vms" / "host-packages-names.txt", self.home / "vms")
        for name in REAL:
            (self.fakes / name).symlink_to(str(shutil.which(name)))
        self.fake("python3", PYTHON)
        self.fake("apt-get", APT)
        self.fake("dpkg-query", DPKG)
        self.user(0)

    def packages(self, text: str) -> None:
        (self.home / "vms" / "host-packages.txt").write_text(text)

    def fake(self, name: str, program: str = "#!/bin/sh\n") -> None:
        (self.fakes / name).write_text(program)
        (self.fakes / name).chmod(0o755)

    def distribution(self, manager: str, program: str) -> None:
        """Replace apt by another package manager; apt itself stays as a program whose dpkg knows no package."""
        self.fake("dpkg-query", "#!/bin/sh\nexit 1\n")
        self.fake(manager, program)
        self.fake("rpm", RPM)
        (self.fakes / "rpms").write_text("gcc\n")

    def user(self, uid: int) -> None:
        self.fake("id", f"#!/bin/sh\necho {uid}\n")

    def calls(self, name: str) -> list[str]:
        path = self.fakes / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def start(self, *words: str, launcher: Path | None = None, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [launcher or self.home / "raidproof", *words],
            env={"PATH": str(self.fakes), "FAKES": str(self.fakes), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            process_group=0,
        )

    def run(self, *words: str, launcher: Path | None = None, **environment: str) -> tuple[int, str, str]:
        process = self.start(*words, launcher=launcher, **environment)
        out, err = process.communicate()
        return process.returncode, out, err

    @property
    def environments(self) -> list[str]:
        return sorted(path.name for path in (self.home / ".venv.d").iterdir() if path.is_dir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    # The launcher adds the sbin directories to the PATH; what these tests call missing is in none of them.
    assert not any((Path(folder) / "nbdkit").exists() for folder in ("/usr/local/sbin", "/usr/sbin", "/sbin"))
    return Machine(tmp_path)


@pytest.mark.parametrize("words", [(), ("--help",), ("help",)])
def test_help_needs_nothing(machine: Machine, words: tuple[str, ...]) -> None:
    status, out, _ = machine.run(*words)
    assert status == 0
    assert "usage: ./raidproof COMMAND" in out
    assert not (machine.home / ".venv.d").exists()


def test_a_ready_machine_goes_straight_to_the_harness(machine: Machine) -> None:
    machine.fake("nbdkit")
    assert machine.run("demo", "a b")[:2] == (0, "harness: -P -m raidproof demo a b\n")
    assert machine.run("demo") == (0, "harness: -P -m raidproof demo\n", "")
    assert len(machine.calls("pip")) == 1
    assert machine.calls("apt") == []


def test_through_a_link(machine: Machine, tmp_path: Path) -> None:
    link = tmp_path / "rp"
    link.symlink_to(machine.home / "raidproof")
    assert machine.run("doctor", launcher=link)[:2] == (0, "harness: -P -m raidproof doctor\n")
    assert (machine.home / ".venv").is_symlink()


def test_root_installs_missing_packages_and_prints_them(machine: Machine) -> None:
    status, _, said = machine.run("demo", APT_BRINGS="nbdkit")
    assert status == 0
    assert "raidproof: installing host packages: nbdkit\n" in said
    assert machine.calls("apt") == [
        "update",
        "-o DPkg::Lock::Timeout=300 install --yes --no-install-recommends nbdkit",
    ]


def test_the_tests_need_more(machine: Machine) -> None:
    machine.fake("nbdkit")
    assert "host packages: shellcheck tshark\n" in machine.run("test", APT_BRINGS="shellcheck tshark")[2]


@pytest.mark.parametrize(
    ("words", "brings"),
    [
        (("demo", "--provider", "vagrant"), "vagrant"),
        (("run", "plan.toml", "--provider=vagrant"), "vagrant"),
        (("advise", "plan.toml", "--provider", "qemu"), "qemu-img"),
        (("scenarios", "--provider=uml", "--provider", "qemu"), "qemu-img"),
        (("demo", "--provider", "uml"), None),
        (("run", "--provider", "hosts", "vagrant"), None),
    ],
)
def test_a_provider_brings_its_own(machine: Machine, words: tuple[str, ...], brings: str | None) -> None:
    machine.fake("nbdkit")
    status, _, said = machine.run(*words, APT_BRINGS=brings or "")
    assert status == 0
    assert machine.calls("apt") == [] if brings is None else f"installing host packages: {brings}\n" in said


def test_what_a_provider_lacks_is_one_line_to_paste(machine: Machine) -> None:
    machine.fake("nbdkit")
    machine.user(1000)
    status, _, said = machine.run("demo", "--provider", "vagrant")
    assert status == 6
    command = "apt-get update && apt-get install --yes --no-install-recommends vagrant"
    assert said == f"raidproof: host packages missing: vagrant (as root: {command})\n"


def test_a_package_without_a_command_is_asked_of_dpkg(machine: Machine) -> None:
    machine.packages("libc6-dev  -  # why\nzlib  -  # removed, its settings kept\nother|libc6-dev  -\n")
    machine.user(1000)
    assert "host packages missing: zlib (" in machine.run("demo")[2]


def test_an_alternative_is_tried_next(machine: Machine) -> None:
    machine.packages("qemu-old|qemu-new  qemu-storage-daemon  # why\n")
    status, _, said = machine.run("demo")
    assert status == 6
    assert [call.split()[-1] for call in machine.calls("apt") if "install" in call] == ["qemu-old", "qemu-new"]
    assert "still missing after installation: qemu-old|qemu-new" in said


def test_without_root_the_exact_command_is_printed(machine: Machine) -> None:
    machine.user(1000)
    machine.packages("nbdkit  nbdkit\nmdtools  mdtool\n")
    status, _, said = machine.run("demo")
    assert status == 6
    command = "apt-get update && apt-get install --yes --no-install-recommends nbdkit mdtools"
    assert said == f"raidproof: host packages missing: nbdkit mdtools (as root: {command})\n"
    assert machine.calls("apt") == []


def test_sudo_where_it_needs_no_password(machine: Machine) -> None:
    machine.user(1000)
    machine.fake("sudo", '#!/bin/sh\n[ "$1" = -n ] && exit 0\necho "$*" >>"$FAKES/sudo.calls"\nexec "$@"\n')
    status, _, said = machine.run("demo", APT_BRINGS="nbdkit")
    assert status == 0
    assert "installing host packages with sudo: nbdkit" in said
    assert len(machine.calls("sudo")) == 2


def test_another_distribution(machine: Machine) -> None:
    (machine.fakes / "apt-get").unlink()
    status, _, said = machine.run("demo")
    assert status == 6
    assert "there is no apt-get, dnf or pacman: nbdkit" in said


LIST = """nbdkit  nbdkit  # why
qemu-system-common|qemu-utils  qemu-storage-daemon  # why
wireshark-common  dumpcap  # why
tshark  tshark  # why
libc6-dev  -  # why
gcc  -  # why
python3-venv  -  # why
"""


def test_fedora(machine: Machine) -> None:
    machine.distribution("dnf", DNF)
    machine.packages(LIST)
    brings = "nbdkit qemu-storage-daemon dumpcap tshark"
    status, _, said = machine.run("demo", DNF_BRINGS=brings, DNF_INSTALLS="glibc-devel")
    assert status == 0
    assert "raidproof: installing host packages: nbdkit qemu-img wireshark-cli glibc-devel\n" in said
    options = "install --assumeyes --setopt=install_weak_deps=False"
    assert machine.calls("dnf") == [f"{options} nbdkit qemu-img wireshark-cli glibc-devel"]
    assert machine.calls("apt") == []


def test_fedora_without_root(machine: Machine) -> None:
    machine.distribution("dnf", DNF)
    machine.user(1000)
    status, _, said = machine.run("demo")
    assert status == 6
    command = "dnf install --assumeyes --setopt=install_weak_deps=False nbdkit glibc-devel"
    assert said == f"raidproof: host packages missing: nbdkit glibc-devel (as root: {command})\n"


def test_dnf_that_fails(machine: Machine) -> None:
    machine.distribution("dnf", DNF)
    status, _, said = machine.run("demo", DNF_FAILS="1")
    assert status == 6
    assert "not installed: Unable to find a match: nbdkit (" in said


def test_arch(machine: Machine) -> None:
    machine.distribution("pacman", PACMAN)
    machine.fake("nbdkit")
    machine.packages(LIST.replace("gcc  -", "gcc  gcc"))
    status, _, said = machine.run("demo", PACMAN_BRINGS="qemu-storage-daemon dumpcap tshark gcc")
    assert status == 0
    assert "raidproof: installing host packages: qemu-img wireshark-cli gcc\n" in said
    assert "--sync --needed --noconfirm qemu-img wireshark-cli gcc" in machine.calls("pacman")


def test_a_package_of_the_arch_user_repository_is_not_installed(machine: Machine) -> None:
    machine.distribution("pacman", PACMAN)
    status, _, said = machine.run("demo")
    assert status == 6
    assert "host packages missing: aur:nbdkit (build and install those of the Arch User Repository" in said
    assert all(call.startswith("--query") for call in machine.calls("pacman"))


def test_every_package_has_a_name_in_each_distribution() -> None:
    rows = [
        line.split()
        for line in (HOME / "vms" / "host-packages-names.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert all(len(row) == 3 for row in rows)
    lists = [path for path in (HOME / "vms").glob("host-packages*.txt") if path.stem != "host-packages-names"]
    columns = [line.split()[0] for path in lists for line in path.read_text().splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows] == sorted({name for column in columns for name in column.split("|")})


def test_apt_that_fails(machine: Machine) -> None:
    status, _, said = machine.run("demo", APT_FAILS="1")
    assert status == 6
    assert "not installed: Unable to locate package nbdkit (" in said


@pytest.mark.parametrize("command", ["doctor", "gc", "judge", "shell"])
def test_other_commands_install_nothing(machine: Machine, command: str) -> None:
    assert machine.run(command)[0] == 0
    assert machine.calls("apt") == []


def test_pip_that_fails_leaves_no_environment(machine: Machine) -> None:
    status, out, said = machine.run("doctor", PIP_FAILS="1")
    assert (status, out) == (6, "")
    assert "no Python environment: no index in sight (" in said
    assert machine.environments == []
    assert not (machine.home / ".venv").is_symlink()
    assert machine.run("doctor")[0] == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_leaves_no_environment(machine: Machine, number: signal.Signals, status: int) -> None:
    process = machine.start("doctor", PIP_HANGS="1")
    wait_until((machine.fakes / "hanging").exists, Deadline.after(20), "pip")
    process.send_signal(number)
    assert process.wait() == status
    assert machine.environments == []


def test_a_killed_preparation_is_begun_again(machine: Machine) -> None:
    process = machine.start("doctor", PIP_HANGS="1")
    wait_until((machine.fakes / "hanging").exists, Deadline.after(20), "pip")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert machine.run("doctor")[0] == 0
    assert len(machine.calls("pip")) == 2


def test_two_at_once_make_one_environment(machine: Machine) -> None:
    both = [machine.start("doctor") for _ in range(4)]
    assert [process.communicate()[0] for process in both] == ["harness: -P -m raidproof doctor\n"] * 4
    assert len(machine.calls("pip")) == 1


def test_the_plugin_is_installed_beside_the_project(machine: Machine) -> None:
    machine.run("doctor")
    (said,) = machine.calls("pip")
    assert said.endswith(f"--editable {machine.home}[dev] --editable {machine.home}/scenarios/suites")


@pytest.mark.parametrize("changed", [0, 1])
def test_a_changed_project_makes_another_environment(machine: Machine, changed: int) -> None:
    machine.run("doctor")
    machine.projects[changed].write_text("[project]\n# changed")
    assert machine.run("doctor")[0] == 0
    assert len(machine.calls("pip")) == 2
    assert (machine.home / ".venv").readlink().name in machine.environments


def test_an_environment_stays_while_a_process_uses_it(machine: Machine) -> None:
    process = machine.start("doctor", RUN_LASTS="1")
    wait_until((machine.fakes / "running").exists, Deadline.after(20), "the run to begin")
    (used,) = machine.environments
    try:
        for text in ("# one", "# two"):
            machine.projects[0].write_text(text)
            assert machine.run("doctor")[0] == 0
            assert used in machine.environments
    finally:
        process.kill()
        process.communicate()
    machine.projects[0].write_text("# three")
    assert machine.run("doctor")[0] == 0
    assert used not in machine.environments


def test_a_python_that_went_away_makes_another_environment(machine: Machine) -> None:
    machine.run("doctor")
    (machine.home / ".venv" / "bin" / "python").unlink()
    assert machine.run("doctor")[0] == 0
    assert len(machine.calls("pip")) == 2


def test_an_environment_of_the_users_is_not_touched(machine: Machine) -> None:
    (machine.home / ".venv").mkdir()
    (machine.home / ".venv" / "mine").touch()
    status, _, said = machine.run("doctor")
    assert status == 3
    assert "was not created by raidproof (move it away)" in said
    assert (machine.home / ".venv" / "mine").exists()


def test_no_python_that_is_new_enough(machine: Machine) -> None:
    machine.fake("python3", "#!/bin/sh\nexit 1\n")
    status, _, said = machine.run("doctor")
    assert status == 6
    assert "no Python 3.11 or newer (as root: apt-get install " in said


def test_python_without_venv(machine: Machine) -> None:
    status, _, said = machine.run("doctor", NO_ENSUREPIP="1")
    assert status == 6
    assert "cannot create virtual environments (as root: apt-get install python3-venv)" in said


def test_a_request_for_completions_installs_nothing(machine: Machine) -> None:
    assert machine.run("demo", _RAIDPROOF_COMPLETE="complete_bash") == (1, "", "")
    assert not (machine.home / ".venv.d").exists()
    machine.fake("nbdkit")
    machine.run("demo")
    completed = machine.run("demo", _RAIDPROOF_COMPLETE="complete_bash")
    assert completed == (0, "harness: -P -m raidproof demo\n", "")
    assert len(machine.calls("pip")) == 1
