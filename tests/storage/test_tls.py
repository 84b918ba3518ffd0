"""TLS of mounts: the certificates, and the daemon tlshd on a machine."""

from collections.abc import Sequence
from configparser import ConfigParser
from datetime import timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.waiting import wall_clock
from raidproof.storage.tls import (
    AUTHORITY,
    CERTIFICATE,
    CONFIG,
    KEY,
    LOG,
    Authority,
    Tls,
    config,
    daemons,
    foreign,
)

STARTED = (
    "tlshd[829]: Built from ktls-utils 1.0.0 on May 25 2025 20:55:34\n"
    "tlshd[829]: Keyring '.nvme' linked into our session keyring.\n"
)


class Machine:
    """A fake machine with tlshd, whose commands succeed except those that begin with the words of ``failing``."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, *failing: str) -> None:
        self.failing = {"pgrep", *failing}
        self.files: dict[str, str] = {}
        self.ran: list[str] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        del stdin, deadline_s
        self.ran.append(" ".join(argv))
        if argv[0] == "sh":
            self.files[LOG] = STARTED
        fails = any(self.ran[-1].startswith(one) for one in self.failing)
        return Completed(tuple(argv), int(fails), "", "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        assert self.run(argv, stdin=stdin, deadline_s=deadline_s).ok
        return ""

    def get(self, path: str) -> str:
        return self.files[path]

    def put(self, content: str, path: str) -> None:
        self.files[path] = content


def tls(machine: Machine, *, asks_clients: bool = False) -> Tls:
    return Tls(machine, Authority(), asks_clients=asks_clients)  # type: ignore[arg-type]


def test_a_certificate_is_signed_by_the_authority_and_names_the_machine() -> None:
    authority = Authority()
    text, key = authority.issue("client1", "10.77.0.21")
    one, root = (x509.load_pem_x509_certificate(pem.encode()) for pem in (text, authority.certificate))
    one.verify_directly_issued_by(root)
    names = one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("10.77.0.21")]
    assert names.get_values_for_type(x509.DNSName) == ["client1"]
    assert load_pem_private_key(key.encode(), None).public_key() == one.public_key()
    assert one.not_valid_before_utc < wall_clock() < one.not_valid_after_utc < wall_clock() + timedelta(days=8)


def test_the_certificate_of_another_authority_is_not_signed_by_the_authority() -> None:
    one = x509.load_pem_x509_certificate(foreign("client1", "10.77.0.21")[0].encode())
    root = x509.load_pem_x509_certificate(Authority().certificate.encode())
    with pytest.raises(ValueError, match="does not match"):
        one.verify_directly_issued_by(root)


def test_the_configuration_names_the_files() -> None:
    parser = ConfigParser()
    parser.read_string(config())
    for role in ("client", "server"):
        assert dict(parser[f"authenticate.{role}"]) == {
            "x509.truststore": AUTHORITY,
            "x509.certificate": CERTIFICATE,
            "x509.private_key": KEY,
        }


def test_tlshd_starts_with_the_files_and_ends_without_them() -> None:
    machine = Machine()
    one = tls(machine)
    one.activate()
    start = next(place for place, line in enumerate(machine.ran) if line.startswith("sh "))
    assert {AUTHORITY, CERTIFICATE, KEY, CONFIG} < machine.files.keys()
    assert f"chmod 0600 {KEY}" in machine.ran[:start]
    one.deactivate()
    assert machine.ran[-1] == "rm --recursive --force /run/raidproof-tls"


def test_a_daemon_that_runs_gets_the_certificates_of_this_authority() -> None:
    machine = Machine()
    tls(machine).activate()
    before = dict(machine.files)
    machine.failing.clear()
    machine.ran.clear()
    tls(machine).activate()
    assert {path for path in before if before[path] != machine.files[path]} == {AUTHORITY, CERTIFICATE, KEY}
    assert not any(line.startswith("sh ") for line in machine.ran)


def test_a_machine_presents_another_certificate_and_then_its_own() -> None:
    machine = Machine()
    one = tls(machine)
    one.activate()
    own = dict(machine.files)
    one.present(*foreign("client1", "10.77.0.21"))
    assert machine.files[CERTIFICATE] != own[CERTIFICATE]
    one.present_own()
    assert machine.files == own


def test_a_machine_without_tlshd_is_refused() -> None:
    with pytest.raises(RequirementMissing, match="no program tlshd"):
        tls(Machine("which")).activate()


def test_another_tlshd_is_left_alone() -> None:
    machine = Machine()
    machine.failing = {"pgrep --full"}
    with pytest.raises(RigError, match="already running"):
        tls(machine).activate()
    assert not machine.files


def test_a_kernel_that_cannot_see_certificates_of_clients_is_refused() -> None:
    with pytest.raises(RequirementMissing, match="CONFIG_ASYMMETRIC_KEY_TYPE"):
        tls(Machine("grep"), asks_clients=True).activate()
    tls(Machine("grep")).activate()


def test_without_tls_no_daemon_runs() -> None:
    machine = Machine()
    assert daemons("none", machine, [machine]) == {}  # type: ignore[arg-type,list-item]
    assert daemons("tls", machine, []).keys() == {"server"}  # type: ignore[arg-type]
