import pytest

from raidproof.core.errors import RigError
from scenarios.nfs.client_states import parse_delegations

PRINTED = """\
/proc/fs/nfsd/clients/11/states:- 0x00000001b3e40b6bb8219f3e02000000: { type: deleg, access: w, superblock: "09:00:132", filename: "/readonly" }
/proc/fs/nfsd/clients/11/info:address: "10.77.0.21:990"
/proc/fs/nfsd/clients/9/states:- 0x00000001b3e40b6bb6219f3e02000000: { type: deleg, access: r, superblock: "09:00:131", filename: "/" }
/proc/fs/nfsd/clients/9/info:address: "10.77.0.22:718"
"""  # noqa: E501
"""Printed by Linux 6.12.113, the second file after a restart."""


def test_delegations_of_all_clients() -> None:
    assert parse_delegations(PRINTED) == {("10.77.0.21", "w", 132), ("10.77.0.22", "r", 131)}


def test_a_second_letter_of_the_access_is_left_out() -> None:
    assert parse_delegations(PRINTED.replace("access: w", "access: wa")) == parse_delegations(PRINTED)


def test_clients_without_delegations() -> None:
    assert parse_delegations(PRINTED.splitlines()[1]) == set()
    assert parse_delegations("") == set()


@pytest.mark.parametrize(
    "text", [PRINTED.replace("superblock", "device"), PRINTED.replace("info:address", "info:name"), PRINTED[:120]]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(RigError, match="cannot be parsed"):
        parse_delegations(text)
