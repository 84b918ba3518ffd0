"""Kerberos (RFC 2203, RPCSEC_GSS): the realm of a lab with its KDC, and the daemons by which NFS uses it on a machine.

The keys live as long as the stack: the KDC makes them, and they are stored nowhere but in the memory of machines and
of this process. The KDC runs on the server, and so loses its power with the server.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.layer import Machine
from raidproof.guest.keeper.store import ROOT as SNAPSHOTS
from raidproof.guest.ledger_format import FIRST_UID, GROUP, OWNER, USERS

SYS, KRB5, KRB5I, KRB5P = "sys", "krb5", "krb5i", "krb5p"
FLAVOURS = (SYS, KRB5, KRB5I, KRB5P)
"""The values of the option sec (nfs(5)): numbers of users; tickets; also with integrity; also encrypted."""
REALM = "RAIDPROOF.TEST"
FOLDER = "/run/raidproof-krb5"
"""The folder of a machine with its keys, the tickets and the KDC's database. It is in memory."""
TICKETS = f"{FOLDER}/tickets"
"""The folder with the tickets of each user, in which rpc.gssd(8) searches them."""
KEYTAB, CONFIG, IDMAP = "/etc/krb5.keytab", "/etc/krb5.conf", "/etc/idmapd.conf"
"""The places of these files, which some programs do not search elsewhere.

rpc.mountd lets clients look up an export by Kerberos only if the keytab is there (v4root.c of nfs-utils).
"""
PASSWD, GROUP_FILE, HOSTS = "/etc/passwd", "/etc/group", "/etc/hosts"
HIDDEN = (CONFIG, KEYTAB, IDMAP, PASSWD, GROUP_FILE, HOSTS)
"""The files of a machine that bind mounts hide. Nothing restores them after a crash, so only machines of the lab's own
provider may have Kerberos: see `Kerberos.activate`."""
USERS_OF_WORK = tuple(range(FIRST_UID, FIRST_UID + USERS))
WITHOUT_TICKET = FIRST_UID + USERS
"""Number of a user of each client who has no ticket."""
ENCRYPTION = "aes256-cts-hmac-sha1-96"
"""The encryption type of all keys: Debian's kernels have no stronger one (AES_SHA2 is off)."""
LIFETIME = "7d"
"""Time for which tickets are valid: longer than any run."""
ANSWER_S = 25
"""Seconds for which rpc.gssd waits for the server to accept a ticket; its default is 5 s.

After this time users get EACCES, also with the option hard. With 5 s they got it from a server that was only busy:
machines of a lab share few CPUs. rpc.gssd itself reports an attempt that lasts 30 s.
"""
ON_EACH = ("rpc.gssd",)
ON_SERVER = ("krb5kdc", "rpc.idmapd", "rpc.svcgssd")
"""The daemons: on each machine, and also on the server."""
_MODULES = ("rpcsec_gss_krb5", "cts")
_PIPES = "/run/rpc_pipefs"
_DATABASE = f"{FOLDER}/kdc"
_USERS_KEYTAB = "users"
_PACKAGES = "krb5-kdc, krb5-admin-server, krb5-user, nfs-common and nfs-kernel-server"
_PACK = 'tar --create --directory "$0" . | base64 --wrap=0'
_UNPACK = 'mkdir --parents --mode=0700 "$0" && base64 --decode | tar --extract --directory "$0"'
_DECODE = 'umask 077 && base64 --decode > "$0"'
_CREATE = 'for one in "$0" "$@"; do [ -e "$one" ] || touch "$one"; done'
"""Scripts that print a folder as text, restore it from the text, write a file from its text, and create files."""
_KDC_CONFIG = f"{FOLDER}/kdc.conf"
_LOG = f"{FOLDER}/kdc.log"
_WITH_CONFIG = ("env", f"KRB5_KDC_PROFILE={_KDC_CONFIG}")


def principal_of(machine: Machine) -> str:
    """Return the principal of a machine, by which clients find the server, and as which root of a client works."""
    return f"nfs/{machine.name}"


def user_name(uid: int) -> str:
    """Return the name of a user of the lab: with Kerberos, NFSv4 has names of users, with AUTH_SYS numbers."""
    return f"user{uid}"


class Realm:
    """A realm: a KDC on one machine, and a key for each machine and each user."""

    def __init__(self, kdc: Machine, machines: Iterable[Machine]) -> None:
        self.kdc = kdc
        self.principals = tuple(principal_of(machine) for machine in machines)
        self._database: str | None = None
        """The database as text; None before the KDC's first start."""
        self._keytabs: dict[str, str] = {}

    def serve(self) -> None:
        """Start the KDC, with the keys that it made at its first start; also after a reboot of the machine.

        Raises:
            CommandFailed: a program of the KDC failed.
        """
        self.kdc.put(kdc_config(), _KDC_CONFIG)
        if self._database is None:
            self._create()
        else:
            self.kdc.succeed(["sh", "-c", _UNPACK, _DATABASE], stdin=self._database)
        self.kdc.succeed([*_WITH_CONFIG, "krb5kdc"])

    def _create(self) -> None:
        self.kdc.succeed(["mkdir", "--parents", "--mode=0700", _DATABASE])
        password = secrets.token_urlsafe(32)
        create = [*_WITH_CONFIG, "kdb5_util", "create", "-s", "-r", REALM]
        self.kdc.succeed(create, stdin=f"{password}\n{password}\n")
        files = {principal: f"{_DATABASE}/{principal.replace('/', '-')}" for principal in self.principals}
        users = {user_name(uid): f"{_DATABASE}/{_USERS_KEYTAB}" for uid in USERS_OF_WORK}
        queries = [f"addprinc -randkey {one}\nktadd -q -k {file} {one}\n" for one, file in (files | users).items()]
        self.kdc.succeed([*_WITH_CONFIG, "kadmin.local"], stdin="".join(queries))
        # kadmin.local ends with status 0 also if a query failed: a keytab is missing then.
        wanted = files | {_USERS_KEYTAB: f"{_DATABASE}/{_USERS_KEYTAB}"}
        keytabs = {one: self.kdc.succeed(["base64", "--wrap=0", file]) for one, file in wanted.items()}
        self._database, self._keytabs = self.kdc.succeed(["sh", "-c", _PACK, _DATABASE]), keytabs

    def keytab(self, name: str) -> str:
        """Return the keytab of a principal of a machine, or of all users, as text of base64.

        Raises:
            RigError: the KDC has not made the keys.
        """
        if name not in self._keytabs:
            raise RigError(f"the KDC on {self.kdc.name} has made no key of {name}: it was never started")
        return self._keytabs[name]


def kdc_config() -> str:
    """Return the configuration of the KDC (kdc.conf(5))."""
    return (
        "[kdcdefaults]\nkdc_ports = 88\nkdc_tcp_ports = 88\n"
        f"[realms]\n{REALM} = {{\ndatabase_name = {_DATABASE}/principal\nkey_stash_file = {_DATABASE}/stash\n"
        f"acl_file = {_DATABASE}/acl\nmax_life = {LIFETIME}\nmax_renewable_life = {LIFETIME}\n"
        f"supported_enctypes = {ENCRYPTION}:normal\nmaster_key_type = {ENCRYPTION}\n}}\n"
        f"[logging]\nkdc = FILE:{_LOG}\n"
    )


def config(kdc: str) -> str:
    """Return the configuration of Kerberos on a machine (krb5.conf(5)); ``kdc``: the address of the KDC."""
    return (
        f"[libdefaults]\ndefault_realm = {REALM}\nticket_lifetime = {LIFETIME}\n"
        "dns_lookup_realm = false\ndns_lookup_kdc = false\ndns_canonicalize_hostname = false\nrdns = false\n"
        f"permitted_enctypes = {ENCRYPTION}\ndefault_ccache_name = FILE:{TICKETS}/krb5cc_%{{uid}}\n"
        f"[realms]\n{REALM} = {{\nkdc = {kdc}\n}}\n"
    )


def idmap_config(roots: Iterable[str]) -> str:
    """Return the configuration of the mapping of names to users (idmapd.conf(5)).

    ``roots``: the principals that are root, as which the export squashes them or not, as root with AUTH_SYS.
    """
    static = "".join(f"{one}@{REALM} = root\n" for one in roots)
    return (
        f"[General]\nDomain = {REALM.lower()}\nLocal-Realms = {REALM}\n"
        "[Mapping]\nNobody-User = nobody\nNobody-Group = nogroup\n"
        # Only for principals: with the method static, the names of root in replies would be those of machines.
        f"[Translation]\nMethod = nsswitch\nGSS-Methods = static,nsswitch\n[Static]\n{static}"
    )


def accounts(more: Iterable[int] = ()) -> tuple[str, str]:
    """Return the lines of /etc/passwd and /etc/group of the users and groups of the lab's work, and of ``more``."""
    users = dict.fromkeys((*USERS_OF_WORK, WITHOUT_TICKET, OWNER, *more))
    passwd = "".join(f"{user_name(uid)}:x:{uid}:{uid}::/:/bin/sh\n" for uid in users)
    group = "".join(f"{user_name(gid)}:x:{gid}:\n" for gid in (*users, GROUP))
    return passwd, group


class Kerberos:
    """Kerberos on a machine: its keys, the tickets of the users, and the daemons that NFS needs.

    Files in ``/etc`` of the machine are hidden by bind mounts, not changed.
    """

    def __init__(self, machine: Machine, realm: Realm, names: Mapping[str, str], more: Sequence[int] = ()) -> None:
        """``names``: the addresses of all machines by name. ``more``: numbers of further users that own files."""
        self.machine = machine
        self.realm = realm
        self._names = names
        self._more = more
        self._other: Realm | None = None
        """The realm of a KDC that no server trusts."""

    @property
    def _serves(self) -> bool:
        return self.realm.kdc is self.machine

    @property
    def _daemons(self) -> tuple[str, ...]:
        return (*(ON_SERVER if self._serves else ()), *ON_EACH)

    def activate(self) -> None:
        """Write keys and configuration, get the users' tickets, and start the daemons; also after a reboot.

        The KDC, on the server, must be active before clients.

        Raises:
            RequirementMissing: the machine existed before the lab, or lacks a program or the kernel's Kerberos.
            RigError: a daemon is already running, with other keys.
        """
        self._refuse_existing()
        self._refuse_kernel()
        if self.machine.exists(FOLDER):
            self.deactivate()
        self._refuse_programs()
        self.machine.succeed(["mkdir", "--parents", "--mode=0711", FOLDER])
        self._configure()
        if self._serves:
            self.realm.serve()
        self._present(self.realm)
        if not self.machine.exists(f"{_PIPES}/gssd"):
            self.machine.succeed(["mount", "--mkdir", "--types", "rpc_pipefs", "rpc_pipefs", _PIPES])
        if self._serves:
            self.machine.succeed(["rpc.idmapd", "-S"])
            self.machine.succeed(["rpc.svcgssd"])
        self._start()

    def _configure(self) -> None:
        """Write the files in /etc, below the folder, and let bind mounts hide the machine's own files."""
        passwd, group = accounts(self._more)
        hosts = "".join(f"{address} {name}\n" for name, address in self._names.items())
        clients = [one for one in self.realm.principals if one != principal_of(self.realm.kdc)]
        files = {
            CONFIG: config(self.realm.kdc.address),
            KEYTAB: "",
            IDMAP: idmap_config(clients),
            PASSWD: self.machine.get(PASSWD) + passwd,
            GROUP_FILE: self.machine.get(GROUP_FILE) + group,
            HOSTS: hosts + self.machine.get(HOSTS),
        }
        self.machine.put_all({_ours(path): content for path, content in files.items()})
        self.machine.succeed(["sh", "-c", _CREATE, *files])
        for path in files:
            self.machine.succeed(["mount", "--bind", _ours(path), path])

    def _present(self, realm: Realm) -> None:
        """Let the machine use its keys of a realm, with new tickets."""
        self.machine.succeed(["rm", "--recursive", "--force", TICKETS])
        # rpc.gssd searches the folder as the user.
        self.machine.succeed(["mkdir", "--mode=0755", TICKETS])
        self.machine.succeed(["sh", "-c", _DECODE, _ours(KEYTAB)], stdin=realm.keytab(principal_of(self.machine)))
        if self._serves:
            return
        self.machine.put(config(realm.kdc.address), _ours(CONFIG))
        users = f"{FOLDER}/{_USERS_KEYTAB}"
        self.machine.succeed(["sh", "-c", _DECODE, users], stdin=realm.keytab(_USERS_KEYTAB))
        for uid in USERS_OF_WORK:
            tickets = f"{TICKETS}/krb5cc_{uid}"
            self.machine.succeed(["kinit", "-k", "-t", users, "-c", tickets, user_name(uid)])
            self.machine.succeed(["chown", f"{uid}:{uid}", tickets])

    def _start(self) -> None:
        self.machine.succeed(["rpc.gssd", "-T", str(ANSWER_S), "-d", TICKETS])

    @contextmanager
    def other_kdc(self) -> Iterator[None]:
        """Let the machine have tickets of another KDC in the ``with`` body, for the same names, with other keys."""
        self._other = self._other or Realm(self.machine, [self.realm.kdc, self.machine])
        self._stop(ON_EACH)
        self._other.serve()
        try:
            self._present(self._other)
            self._start()
            yield
            if (server := principal_of(self.realm.kdc)) not in self.machine.get(_LOG):
                raise RigError(f"{self.machine.name}: the other KDC gave no ticket for {server}, so nothing was tried")
        finally:
            self._stop([*ON_EACH, "krb5kdc"])
            self.machine.succeed(["rm", "--recursive", "--force", _DATABASE, _LOG])
            self._present(self.realm)
            self._start()

    def _refuse_existing(self) -> None:
        if self.machine.exists(SNAPSHOTS):
            raise RequirementMissing(
                f"{self.machine.name}: sec is not possible on a machine that existed before the lab: raidproof would "
                f"hide its {', '.join(HIDDEN)}",
                remedy="use provider uml, qemu or vagrant",
            )

    def _refuse_kernel(self) -> None:
        ended = self.machine.run(["modprobe", "--all", *_MODULES])
        if not ended.ok:
            raise RequirementMissing(
                f"{self.machine.name}: the kernel has no Kerberos, which sec needs: {ended.stderr.strip()}",
                remedy="boot a kernel with CONFIG_RPCSEC_GSS_KRB5 and CONFIG_CRYPTO_CTS",
            )

    def _refuse_programs(self) -> None:
        needed = (*self._daemons, *(("kdb5_util", "kadmin.local") if self._serves else ("kinit",)))
        found = {path.rpartition("/")[2] for path in self.machine.run(["which", *needed]).stdout.split()}
        if lacks := [program for program in needed if program not in found]:
            raise RequirementMissing(
                f"{self.machine.name}: no program {', '.join(lacks)}, which sec needs",
                remedy=f"install the packages {_PACKAGES}, or use an image that has them",
            )
        running = self.machine.run(["pgrep", "--exact", "--list-name", "|".join(self._daemons)])
        if running.ok:
            names = " ".join(running.stdout.split()[1::2])
            raise RigError(
                f"{self.machine.name}: already running, with other keys: {names}", remedy=f"end it: pkill {names}"
            )

    def _stop(self, daemons_to_end: Sequence[str]) -> None:
        for daemon in daemons_to_end:
            self.machine.run(["pkill", "--exact", daemon])

    def deactivate(self) -> None:
        """End the daemons, show the machine's own files again, and remove all keys and tickets.

        If Kerberos was never activated, nothing is done: a daemon that runs is not ours.
        """
        if not self.machine.exists(FOLDER):
            return
        self._stop(self._daemons)
        for path in HIDDEN:
            self.machine.run(["umount", "--lazy", path])
        # Without its own file, the machine had none.
        self.machine.run(["find", CONFIG, KEYTAB, IDMAP, "-maxdepth", "0", "-empty", "-delete"])
        self.machine.succeed(["rm", "--recursive", "--force", FOLDER])


def _ours(path: str) -> str:
    """Return the path of the file that a bind mount shows at ``path``."""
    return f"{FOLDER}/{path.rpartition('/')[2]}"


def daemons(
    flavour: str, server: Machine, clients: Sequence[Machine], more: Sequence[int] = ()
) -> dict[str, Kerberos]:
    """Return Kerberos of each machine by name; empty if the mounts need none. ``more``: see `Kerberos`."""
    if flavour == SYS:
        return {}
    machines = [server, *clients]
    realm = Realm(server, machines)
    names = {machine.name: machine.address for machine in machines}
    return {machine.name: Kerberos(machine, realm, names, more) for machine in machines}
