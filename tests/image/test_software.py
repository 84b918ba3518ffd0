from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.image.software import Software, parse_software, software_of

ANSWER = (Path(__file__).parents[1] / "data" / "software" / "debian-sid.txt").read_text()


def test_kernel_and_packages_are_read_back() -> None:
    found = parse_software(ANSWER)
    assert (found.kernel, found.manager) == ("6.1.176", "dpkg")
    assert len(found.packages) == ANSWER.count("installed ")
    assert found.packages["nfs-common"] == "1:3.1.1-1"
    assert found.packages["mdadm"] == "4.6-3"


def test_what_is_not_installed_has_no_version() -> None:
    text = "6.12.101\ndpkg\nconfig-files strace 6.13-1\nnot-installed nfs-server \ninstalled mdadm 4.4-11\nend\n"
    assert parse_software(text).packages == {"mdadm": "4.4-11"}


def test_packages_of_other_distributions_are_read_from_rpm() -> None:
    text = "5.14.0-611.el9.x86_64\nrpm\ninstalled nfs-utils 1:2.5.4-38.el9\ninstalled mdadm 4.4-2.el9\nend\n"
    assert parse_software(text).packages == {"nfs-utils": "1:2.5.4-38.el9", "mdadm": "4.4-2.el9"}


def test_a_system_without_a_package_manager_has_no_packages() -> None:
    assert parse_software("6.18.2\nnone\nend\n") == Software("6.18.2", {}, None)


@given(st.integers(0, len(ANSWER) - 2))
def test_a_cut_off_answer_is_refused(length: int) -> None:
    with pytest.raises(RigError, match="incomplete"):
        parse_software(ANSWER[:length])


def test_one_command_reads_all_versions() -> None:
    machine: Any = Mock()
    machine.name = "server"
    machine.run.return_value = Completed(("sh",), 0, ANSWER, "", "server")
    assert software_of(machine) == parse_software(ANSWER)
    assert machine.run.call_count == 1


def test_a_machine_that_fails_at_it_is_named() -> None:
    machine: Any = Mock()
    machine.name = "server"
    machine.run.return_value = Completed(("sh",), 127, "", "sh: not found", "server")
    with pytest.raises(RigError, match="server: cannot list the installed packages: sh: not found"):
        software_of(machine)
