"""The content of a box that raidproof builds."""

import json
from pathlib import Path

from raidproof.image.kernel import Kernel
from raidproof.provider.vagrant.box import DISK, MODULES, environment, metadata, vagrantfile


def kernel(*arguments: str) -> Kernel:
    return Kernel("debian/test", "6.12", Path("/k/vmlinuz"), Path("/k/modules"), arguments=arguments)


def test_the_metadata_have_the_fields_that_vagrant_libvirt_requires() -> None:
    assert json.loads(metadata(2)) == {"provider": "libvirt", "format": "qcow2", "virtual_size": 2}
    assert DISK == "box.img"  # the one name that it takes for this format


def test_the_box_boots_by_the_files_beside_its_vagrantfile() -> None:
    text = vagrantfile(kernel("quiet"))
    assert 'File.join(folder, "vmlinuz")' in text
    assert f'File.join(folder, "{MODULES}")' in text
    assert "raidproof.dhcp quiet" in text
    assert "#{modules}" in text


def test_an_argument_with_quotes_does_not_leave_its_string() -> None:
    assert r"\"x\"" in vagrantfile(kernel('dyndbg="x"'))


def test_vagrant_keeps_to_the_home_that_it_is_given() -> None:
    told = environment(Path("/lab/vagrant"))
    assert told["VAGRANT_HOME"] == "/lab/vagrant"
    assert told["VAGRANT_CHECKPOINT_DISABLE"] == "1"
