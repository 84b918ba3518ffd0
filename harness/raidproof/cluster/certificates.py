"""Certificates of a cluster: a certificate authority, and one certificate for all parts of the cluster.

Scheduler, workers and clients prove to each other that they know a key that this authority has signed (mutual TLS).
A program that has the key can execute any program on all workers.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from raidproof.core.certificate import builder, key_as_pem, name_of, new_key, pem_of
from raidproof.core.errors import RequestError
from raidproof.core.files import make_directory
from raidproof.core.waiting import wall_clock

if TYPE_CHECKING:
    from distributed.security import Security

AUTHORITY, CERTIFICATE, KEY = "ca.pem", "cluster.pem", "cluster-key.pem"
"""Names of the files: certificate of the authority; certificate and key of the cluster's parts."""
DAYS = 365
"""Default of the number of days for which certificates are valid."""


def default_folder() -> Path:
    """Return the folder for the certificates of this user: ``$XDG_CONFIG_HOME/raidproof/cluster``."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config").absolute() / "raidproof" / "cluster"


def create(folder: Path, days: int = DAYS) -> None:
    """Create the authority, and a certificate with its key, in a folder.

    The key of the authority is not stored: for a further certificate, create all of them again.

    Raises:
        RequestError: the folder has certificates already.
    """
    if (folder / KEY).exists():
        raise RequestError(
            f"{folder} has certificates already", remedy="remove this folder to replace them, or choose another folder"
        )
    make_directory(folder, exist_ok=True)
    folder.chmod(0o700)
    now = wall_clock()
    authority_key, key = new_key(), new_key()
    issuer = name_of("raidproof certificate authority")
    dates = (now - timedelta(minutes=5), now + timedelta(days=days))
    authority = (
        builder(issuer, issuer, authority_key.public_key(), dates)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        builder(name_of("raidproof cluster"), issuer, key.public_key(), dates)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    for name, content in (
        (AUTHORITY, pem_of(authority)),
        (CERTIFICATE, pem_of(certificate)),
        (KEY, key_as_pem(key)),
    ):
        # The file never exists with wider permissions.
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)


def security_of(folder: Path | None) -> "Security":
    """Return Dask's security settings for the certificates of a folder; None: the default folder.

    Raises:
        RequestError: the folder lacks a file.
    """
    from distributed.security import Security  # noqa: PLC0415  an extra

    where = folder or default_folder()
    paths = {name: where / name for name in (AUTHORITY, CERTIFICATE, KEY)}
    if missing := [str(path) for path in paths.values() if not path.is_file()]:
        raise RequestError(
            f"no certificates for the cluster: {', '.join(missing)} missing",
            remedy="make them on one machine with `raidproof cluster certs`, and copy the folder to each machine",
        )
    authority, certificate, key = (str(path) for path in paths.values())
    return Security(  # type: ignore[no-untyped-call]
        require_encryption=True,
        tls_ca_file=authority,
        **{
            f"tls_{role}_{what}": value
            for role in ("client", "scheduler", "worker")
            for what, value in (("cert", certificate), ("key", key))
        },
    )
