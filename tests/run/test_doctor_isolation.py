from pathlib import Path

import pytest

from raidproof.run.doctor import (
    Outcome,
    explain_refusal,
    namespace_check,
    read_sysctls,
    subordinate_check,
    subordinate_ids,
    tun_check,
)

SUBUID = "daemon:1:2\nalice:100000:65536\n1001:300000:65536\nbroken\n"


def test_tun_that_is_not_there(tmp_path: Path) -> None:
    check = tun_check(tmp_path / "tun")
    assert check.outcome is Outcome.MISSING
    assert check.reason == "No such file or directory"
    assert "modprobe tun" in check.remedy


def test_tun_that_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "tun").touch()
    assert tun_check(tmp_path / "tun").outcome is Outcome.OK


def test_sysctls_that_this_kernel_has(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "max_user_namespaces").write_text("0\n")
    assert read_sysctls(tmp_path) == {"user.max_user_namespaces": "0"}


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"user.max_user_namespaces": "0"}, "sysctl -w user.max_user_namespaces=15000"),
        ({"kernel.unprivileged_userns_clone": "0"}, "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            {"user.max_user_namespaces": "9", "kernel.apparmor_restrict_unprivileged_userns": "1"},
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({"kernel.apparmor_restrict_unprivileged_userns": "0"}, "outside of the container"),
        ({}, "outside of the container"),
    ],
)
def test_refusals_are_explained(settings: dict[str, str], remedy: str) -> None:
    assert remedy in explain_refusal(settings)[1]
    check = namespace_check("unshare: Operation not permitted", settings, root=False)
    assert check.outcome is Outcome.MISSING
    assert "Operation not permitted" in check.reason


def test_namespaces_that_work() -> None:
    assert namespace_check(None, {"user.max_user_namespaces": "0"}, root=False).outcome is Outcome.OK


def test_root_without_the_privilege() -> None:
    check = namespace_check("unshare failed", {}, root=True)
    assert (check.name, check.outcome) == ("namespaces", Outcome.MISSING)
    assert "--cap-add SYS_ADMIN,NET_ADMIN" in check.remedy


@pytest.mark.parametrize(("user", "uid", "count"), [("alice", 1000, 65536), ("bob", 1001, 65536), ("carol", 1002, 0)])
def test_subordinate_ids_by_name_or_number(user: str, uid: int, count: int) -> None:
    assert subordinate_ids(SUBUID, user, uid) == count


def test_subordinate_ids_are_needed_in_both_files() -> None:
    assert subordinate_check({"/etc/subuid": SUBUID, "/etc/subgid": SUBUID}, "alice", 1000).outcome is Outcome.OK
    check = subordinate_check({"/etc/subuid": SUBUID, "/etc/subgid": ""}, "alice", 1000)
    assert check.outcome is Outcome.MISSING
    assert check.reason.startswith("/etc/subgid: ")
