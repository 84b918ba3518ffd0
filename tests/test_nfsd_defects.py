"""The defects that scenarios plant in nfsd: their C code is compiled and called here, without a kernel."""

import subprocess
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.verdict.contract import PROMISES
from raidproof.workload.ledger import LedgerSpec
from scenarios.selftest.nfsd_defects import DEFECTS, edit

FUNCTIONS = {
    "nfsd_commit": ("vfs_fsync_range(0)",),
    "nfsd_link": ("commit_metadata(1)", "commit_metadata(2)"),
    "nfsd_rename": ("commit_metadata(1)", "commit_metadata(2)"),
    "nfsd_unlink": ("commit_metadata(1)",),
    "nfsd_setattr": ("commit_metadata(1)",),
    "nfsd_create_setattr": ("commit_metadata(1)", "commit_metadata(2)"),
    "nfsd_symlink": ("commit_metadata(1)",),
    "nfsd4_vfs_fallocate": ("commit_metadata(1)",),
}
"""The calls by which each function makes something durable, as nfsd has them."""
OTHERS = """\
int
nfsd_vfs_write(int err)
{
	int stable = 1;
	unsigned long size = 65536, *cnt = &size;
	if (stable && !err)
		made++;
	return err;
}

int nfsd4_clone_file_range(int err)
{
	int sync = 1;
	if (sync) {
		made++;
	}
	return err;
}

"""
CALLED = {
    "commit-every-8th": "nfsd_commit",
    "commit-noop": "nfsd_commit",
    "stable-write-every-8th": "nfsd_vfs_write",
    "stable-write-large": "nfsd_vfs_write",
    "link-no-commit": "nfsd_link",
    "rename-no-commit": "nfsd_rename",
    "remove-no-commit": "nfsd_unlink",
    "setattr-no-commit": "nfsd_setattr",
    "create-no-commit": "nfsd_create_setattr",
    "allocate-no-commit": "nfsd4_vfs_fallocate",
    "clone-no-sync": "nfsd4_clone_file_range",
}
TIMES = 16
MODULE_H = """\
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#define module_param_string(name, string, length, mode)
#define module_param_named(name, variable, type, mode)
#define sysfs_streq(one, other) (!strcmp(one, other))
static int made;
static int commit_metadata(int of) { made++; return 0; }
static int vfs_fsync_range(int of) { made++; return 0; }
"""


def function(name: str, calls: tuple[str, ...]) -> str:
    body = "".join(f"\tif (!err)\n\t\terr = {call};\n" for call in calls)
    return f"int\n{name}(int err)\n{{\n{body}\treturn err;\n}}\n\n"


def source() -> str:
    return '#include "nfsd.h"\n\n' + "".join(function(name, calls) for name, calls in FUNCTIONS.items()) + OTHERS


def made(folder: Path, defect: str, function: str) -> tuple[int, int]:
    """Call a function of the edited source this often; return how often it made data durable, and how often not."""
    (folder / "linux").mkdir()
    (folder / "linux" / "module.h").write_text(MODULE_H)
    (folder / "nfsd.h").write_text("#include <linux/module.h>\n")
    loop = f"for (int i = 0; i < {TIMES}; i++) {function}(0);"
    main = f'int main(void) {{ {loop} printf("%d %u", made, planted_broken); }}\n'
    (folder / "vfs.c").write_text(edit(defect).apply(source()) + main)
    for argv in (
        ["gcc", "-w", f"-I{folder}", "-o", str(folder / "vfs"), str(folder / "vfs.c")],
        [str(folder / "vfs")],
    ):
        ended = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
    durable, broken = map(int, ended.stdout.split())
    return durable, broken


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_omits_the_declared_step(tmp_path: Path, defect: str) -> None:
    each = len(FUNCTIONS.get(CALLED[defect], "1"))
    durable, broken = made(tmp_path, defect, CALLED[defect])
    if defect.endswith("every-8th"):
        assert (durable, broken) == (TIMES * 7 // 8, TIMES // 8)
    else:
        assert (durable, broken) == (0, TIMES * each)


@pytest.mark.parametrize("function", sorted({*CALLED.values(), "nfsd_symlink"}))
def test_without_a_defect_no_step_is_omitted(tmp_path: Path, function: str) -> None:
    assert made(tmp_path, "", function) == (TIMES * len(FUNCTIONS.get(function, "1")), 0)


def test_a_defect_concerns_its_own_calls_alone(tmp_path: Path) -> None:
    assert made(tmp_path, "link-no-commit", "nfsd_rename") == (TIMES * 2, 0)


def test_each_is_called_here() -> None:
    assert DEFECTS.keys() == CALLED.keys()


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_breaks_promises_that_the_ledger_tests(defect: str) -> None:
    assert DEFECTS[defect].kinds
    assert DEFECTS[defect].kinds <= PROMISES.keys() & LedgerSpec().doing()


@pytest.mark.parametrize("name", DEFECTS)
def test_a_name_fits_into_the_parameter(name: str) -> None:
    # With the newline that a write to sysfs ends with, and the zero.
    assert len(name) + 2 <= 32


def test_another_nfsd_is_not_edited() -> None:
    with pytest.raises(RigError, match=r"nfsd_link contains .* 3 times, not 2"):
        edit().apply(source().replace("nfsd_link(int err)\n{\n", "nfsd_link(int err)\n{\n\tcommit_metadata(0);\n"))


def test_a_typo_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'commit-noop'"):
        edit("commit-nop")
