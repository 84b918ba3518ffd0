"""The settings of nfsd on a server: nfs.conf(5), or the older files with RPCNFSDCOUNT."""

import re

from pydantic import BaseModel, ConfigDict

from raidproof.existing.fact import Fact, read
from raidproof.existing.given import Given, shortened

_SECTION = re.compile(r"^\[\s*([\w-]+)(?:\s+\"[^\"]*\")?\s*\]$")
_PREFIX = re.compile(r"^/etc/nfs\.conf\.d/[^:\s]+\.conf:")
"""The start of a line of the directory /etc/nfs.conf.d in the output of grep."""
_OLD = re.compile(r"^(RPCNFSDCOUNT|RPCNFSDARGS|NFSD_V4_GRACE|NFSD_V4_LEASE)=\"?([^\"#]*)\"?")
_KEYS = {"threads": "threads", "grace-time": "grace_s", "lease-time": "lease_s"}
_OLD_KEYS = {"RPCNFSDCOUNT": "threads", "NFSD_V4_GRACE": "grace_s", "NFSD_V4_LEASE": "lease_s"}


class NfsConf(BaseModel):
    """The settings of nfsd that a file has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threads: Fact[int] | None = None
    grace_s: Fact[int] | None = None
    lease_s: Fact[int] | None = None


def parse_nfs_conf(file: Given) -> NfsConf:
    """Return the settings of nfsd in nfs.conf, or in /etc/default/nfs-kernel-server or /etc/sysconfig/nfs.

    Raises:
        RequestError: a section or a number is malformed.
    """
    found: dict[str, Fact[int]] = {}
    section = ""
    for number, line in file.lines():
        text = _PREFIX.sub("", line).strip()
        if not text or text.startswith(("#", ";")):
            continue
        if text.startswith("["):
            named = _SECTION.match(text)
            if named is None:
                file.refuse(number, f"malformed section {shortened(text)!r}")
            section = named[1]
        elif old := _OLD.match(text):
            if name := _OLD_KEYS.get(old[1]):
                found[name] = read(_number(file, number, old[1], old[2].strip()), file.at(number))
        elif section == "nfsd" and "=" in text:
            key, _, value = (part.strip() for part in text.partition("="))
            if name := _KEYS.get(key.lower()):
                found[name] = read(_number(file, number, key, value), file.at(number))
    return NfsConf(**found)


def _number(file: Given, line: int, key: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text):
        file.refuse(line, f"{key}: not a number: {shortened(text)!r}")
    return int(text)
