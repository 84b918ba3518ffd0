"""Certificates of TLS (X.509) with keys on an elliptic curve: what each of them has in common."""

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key."""
    return ec.generate_private_key(ec.SECP256R1())


def name_of(common: str) -> x509.Name:
    """Return the name of an authority or of a machine."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, dates: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    """Return a certificate without extensions and signature; ``dates``: the begin and the end of its validity."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(dates[0])
        .not_valid_after(dates[1])
    )


def pem_of(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def key_as_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a key as PEM, without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
