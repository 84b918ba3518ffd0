"""Kerberos of mounts: the realm of a lab, its configuration files, and the daemons on a machine."""

import re
from collections.abc import Mapping, Sequence

import pytest

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.guest.keeper.store import ROOT as SNAPSHOTS
from raidproof.storage.kerberos import (
    CONFIG,
    FOLDER,
    KEYTAB,
    TICKETS,
    USERS_OF_WORK,
    WITHOUT_TICKET,
    Kerberos,
    Realm,
    accounts,
    config,
    daemons,
    idmap_config,
    kdc_config,
)

SERVER, CLIENT = ("server", "10.77.0.10"), ("client1", "10.77.0.21")
KEYS = "a keytab"


class Machine:
    """A fake machine whose commands succeed, except those that begin with the words of ``failing``."""

    def __init__(self, name: str, address: str, *failing: str) -> None:
        self.name, self.address = name, address
        self.failing = {"pgrep", *failing}
        self.files = {"/etc/passwd": "root:x:0:0::/root:/bin/sh\n", "/etc/group": "root:x:0:\n", "/etc/hosts": ""}
        self.ran: list[str] = []
        self.given: dict[str, str] = {}

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        del deadline_s
        line = " ".join(argv)
        self.ran.append(line)
        self.given[line] = stdin or ""
        if argv[0] == "mkdir":
            self.files[argv[-1]] = ""
        if argv[0] == "rm":
            self.files = {path: text for path, text in self.files.items() if not path.startswith(argv[-1])}
        fails = any(line.startswith(one) for one in self.failing)
        said = {"base64": KEYS, "sh": KEYS, "pgrep": f"812 {argv[-1].split('|')[0]}\n"}.get(argv[0], "")
        if argv[0] == "which":
            said = "".join(f"/usr/sbin/{one}\n" for one in argv[1:] if f"which {one}" not in self.failing)
        return Completed(tuple(argv), int(fails), said, "no", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        ended = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        assert ended.ok
        return ended.stdout

    def get(self, path: str) -> str:
        return self.files[path]

    def put(self, content: str, path: str) -> None:
        self.files[path] = content

    def put_all(self, files: Mapping[str, str]) -> dict[str, str]:
        self.files |= files
        return {}

    def exists(self, path: str) -> bool:
        return path in self.files

    def commands(self, word: str) -> list[str]:
        return [line for line in self.ran if re.search(rf"(^|[ /]){re.escape(word)}\b", line)]


def lab(*failing: str) -> tuple[Machine, Machine, dict[str, Kerberos]]:
    server, client = Machine(*SERVER, *failing), Machine(*CLIENT, *failing)
    return server, client, daemons("krb5p", server, [client])  # type: ignore[arg-type, list-item]


def test_without_kerberos_no_daemon_runs() -> None:
    assert daemons("sys", Machine(*SERVER), []) == {}  # type: ignore[arg-type]


def test_the_kdc_starts_before_the_daemons_that_need_keys() -> None:
    server, _, secured = lab()
    secured["server"].activate()
    assert any("mount --bind" in line for line in server.ran[: server.ran.index("rpc.idmapd -S")])
    programs = [line for line in server.ran if not line.startswith(("which", "pgrep"))]
    started = [
        line.split()[-1 if "krb5kdc" in line else 0]
        for line in programs
        if re.search(r"^rpc\.|kdb5_util|kadmin\.local|krb5kdc$", line)
    ]
    assert started == ["env", "env", "krb5kdc", "rpc.idmapd", "rpc.svcgssd", "rpc.gssd"]


def test_keys_are_made_once_and_restored_after_a_reboot() -> None:
    server, _, secured = lab()
    secured["server"].activate()
    server.ran.clear()
    server.files = {path: text for path, text in server.files.items() if not path.startswith(FOLDER)}
    secured["server"].activate()
    assert not server.commands("kadmin.local")[1:]
    assert any("tar --extract" in line for line in server.ran)
    assert [text for line, text in server.given.items() if "tar --extract" in line] == [KEYS]


def test_each_machine_and_each_user_has_a_key_of_its_own() -> None:
    server, _, secured = lab()
    secured["server"].activate()
    (queries,) = (text for line, text in server.given.items() if line.endswith("kadmin.local") and text)
    made = re.findall(r"^addprinc -randkey (\S+)$", queries, re.MULTILINE)
    assert made == ["nfs/server", "nfs/client1", *(f"user{uid}" for uid in USERS_OF_WORK)]
    assert f"user{WITHOUT_TICKET}" not in queries


def test_no_secret_is_in_a_command_line() -> None:
    server, client, secured = lab()
    for one in (secured["server"], secured["client1"]):
        one.activate()
    password = next(text for line, text in server.given.items() if "kdb5_util" in line and text).split()[0]
    assert len(password) > 40
    assert not any(secret in line for line in (*server.ran, *client.ran) for secret in (password, KEYS))


def test_each_user_of_a_client_gets_a_ticket_that_only_he_can_read() -> None:
    _, client, secured = lab()
    secured["server"].activate()
    secured["client1"].activate()
    for uid in USERS_OF_WORK:
        tickets = f"{TICKETS}/krb5cc_{uid}"
        assert any(line.endswith(f"-c {tickets} user{uid}") for line in client.commands("kinit"))
        assert f"chown {uid}:{uid} {tickets}" in client.ran
    assert not any(str(WITHOUT_TICKET) in line for line in client.ran)
    assert not client.commands("krb5kdc")


def test_a_client_cannot_have_a_ticket_before_the_kdc_has_made_keys() -> None:
    with pytest.raises(RigError, match="was never started"):
        lab()[2]["client1"].activate()


def test_the_files_of_the_machine_are_hidden_and_shown_again() -> None:
    server, _, secured = lab()
    secured["server"].activate()
    hidden = [line.split()[-1] for line in server.commands("mount") if "--bind" in line]
    assert {"/etc/passwd", "/etc/hosts", KEYTAB, CONFIG} < {*hidden}
    assert server.files["/etc/passwd"] == "root:x:0:0::/root:/bin/sh\n"
    assert server.files[f"{FOLDER}/passwd"].startswith(server.files["/etc/passwd"])
    secured["server"].deactivate()
    assert [line.split()[-1] for line in server.commands("umount")] == hidden
    assert server.ran[-1] == f"rm --recursive --force {FOLDER}"
    assert any(line.startswith("pkill") and "krb5kdc" in line for line in server.ran)


def test_nothing_changes_on_a_machine_that_existed_before_the_lab() -> None:
    server, _, secured = lab()
    server.files[SNAPSHOTS] = ""
    with pytest.raises(RequirementMissing, match="existed before the lab"):
        secured["server"].activate()
    secured["server"].deactivate()
    assert not server.ran


def test_what_an_earlier_activation_left_is_removed_first() -> None:
    server, _, secured = lab()
    secured["server"].activate()
    server.ran.clear()
    secured["server"].activate()
    assert server.ran.index("pkill --exact rpc.svcgssd") < server.ran.index("rpc.svcgssd")


def test_the_tickets_of_another_kdc_are_exchanged_for_own_ones_at_the_end() -> None:
    _, client, secured = lab()
    secured["server"].activate()
    secured["client1"].activate()
    with secured["client1"].other_kdc():
        assert f"kdc = {CLIENT[1]}\n" in client.files[f"{FOLDER}/krb5.conf"]
        client.files[f"{FOLDER}/kdc.log"] = "TGS_REQ ISSUE nfs/client1 for nfs/server\n"
    assert f"kdc = {SERVER[1]}\n" in client.files[f"{FOLDER}/krb5.conf"]
    with secured["client1"].other_kdc():
        client.files[f"{FOLDER}/kdc.log"] = "TGS_REQ ISSUE nfs/client1 for nfs/server\n"
    assert len([line for line in client.commands("kadmin.local") if line.startswith("env")]) == 1
    assert client.ran[-1].startswith("rpc.gssd")


def test_an_attempt_without_a_ticket_of_the_other_kdc_is_no_attempt() -> None:
    _, client, secured = lab()
    secured["server"].activate()
    secured["client1"].activate()
    tried = secured["client1"].other_kdc()
    with pytest.raises(RigError, match="no ticket for nfs/server"), tried:
        client.files[f"{FOLDER}/kdc.log"] = "AS_REQ nfs/client1\n"
    assert f"kdc = {SERVER[1]}\n" in client.files[f"{FOLDER}/krb5.conf"]


def test_a_machine_without_the_programs_is_refused() -> None:
    with pytest.raises(RequirementMissing, match="no program krb5kdc, which sec needs"):
        lab("which krb5kdc")[2]["server"].activate()
    _, _, secured = lab("which kinit")
    secured["server"].activate()
    with pytest.raises(RequirementMissing, match="client1: no program kinit"):
        secured["client1"].activate()


def test_a_kernel_without_kerberos_is_refused() -> None:
    with pytest.raises(RequirementMissing, match="CONFIG_RPCSEC_GSS_KRB5"):
        lab("modprobe")[2]["server"].activate()


def test_another_daemon_is_left_alone() -> None:
    server, _, secured = lab()
    server.failing.clear()
    with pytest.raises(RigError, match="already running, with other keys: krb5kdc"):
        secured["server"].activate()
    assert FOLDER not in server.files
    assert not server.commands("pkill")


def test_the_configurations_agree_on_realm_and_encryption() -> None:
    for text in (config("10.0.0.1"), kdc_config()):
        assert "RAIDPROOF.TEST = {" in text
        assert text.count("{") == text.count("}")
        # The kernel's only strong encryption types are those of AES with SHA-1.
        assert "aes256-cts-hmac-sha1-96" in text
    mapped = idmap_config(["nfs/client1"])
    assert "[Static]\nnfs/client1@RAIDPROOF.TEST = root\n" in mapped
    assert "\nMethod = nsswitch\n" in mapped


def test_users_have_the_same_numbers_as_with_auth_sys() -> None:
    passwd, group = accounts([77, USERS_OF_WORK[0]])
    numbers = [line.split(":")[2] for line in passwd.splitlines()]
    assert {*map(str, USERS_OF_WORK), str(WITHOUT_TICKET), "77", "12345"} == {*numbers}
    assert len(numbers) == len({*numbers})
    assert {"23456", *numbers} == {line.split(":")[2] for line in group.splitlines()}


def test_a_realm_has_no_key_of_a_stranger() -> None:
    with pytest.raises(RigError, match="has made no key of nfs/x"):
        Realm(Machine(*SERVER), []).keytab("nfs/x")  # type: ignore[arg-type]
