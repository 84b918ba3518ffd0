import pytest

from raidproof.core.package_manager import AUR, PackageManager, choose, instruction, names


@pytest.mark.parametrize(
    ("programs", "dpkg_knows", "chosen"),
    [
        ({"apt-get"}, True, PackageManager.APT),
        ({"apt-get", "dnf"}, True, PackageManager.APT),
        ({"apt-get", "dnf"}, False, PackageManager.DNF),
        ({"dnf"}, False, PackageManager.DNF),
        ({"apt-get", "pacman"}, False, PackageManager.PACMAN),
        (set(), False, PackageManager.APT),
    ],
)
def test_the_manager_of_a_host(programs: set[str], dpkg_knows: bool, chosen: PackageManager) -> None:
    assert choose(lambda name: name if name in programs else None, lambda: dpkg_knows) is chosen


@pytest.mark.parametrize(
    ("manager", "said"),
    [
        (
            PackageManager.APT,
            "as root: apt-get update && apt-get install --yes --no-install-recommends tshark uidmap new",
        ),
        (
            PackageManager.DNF,
            "as root: dnf install --assumeyes --setopt=install_weak_deps=False wireshark-cli shadow-utils new",
        ),
        (PackageManager.PACMAN, "as root: pacman --sync --needed --noconfirm wireshark-cli shadow new"),
    ],
)
def test_the_instruction_of_each_manager(manager: PackageManager, said: str) -> None:
    assert instruction(["tshark", "uidmap", "new"], manager) == said


def test_names_that_are_one_package_are_written_once() -> None:
    said = instruction(["qemu-system-common", "qemu-utils"], PackageManager.DNF)
    assert said.endswith(" qemu-img")
    assert said.count("qemu-img") == 1


def test_packages_of_the_arch_user_repository_are_named_apart() -> None:
    said = instruction(["gcc", "nbdkit", "nbdkit-plugin-python"], PackageManager.PACMAN)
    assert said == (
        "as root: pacman --sync --needed --noconfirm gcc; from the Arch User Repository, by makepkg: nbdkit"
    )
    assert instruction(["nbdkit"], PackageManager.PACMAN) == "from the Arch User Repository, by makepkg: nbdkit"


def test_what_is_always_installed_needs_no_package() -> None:
    assert instruction(["python3-venv"], PackageManager.DNF) == "reinstall Python with its module venv"


def test_only_arch_has_packages_of_its_users() -> None:
    for row in names().values():
        assert not row[PackageManager.APT].startswith(AUR)
        assert not row[PackageManager.DNF].startswith(AUR)
