"""The keys of one lab: made for it, pinned on both sides, gone with it."""

from dataclasses import dataclass
from io import StringIO

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class KeyPair:
    """An Ed25519 key in OpenSSH's own form."""

    private: str
    public: str

    @classmethod
    def generate(cls) -> "KeyPair":
        """Make a new key."""
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return cls(private.decode(), public.decode() + "\n")

    def for_paramiko(self) -> paramiko.PKey:
        """Return the key as the SSH library wants it."""
        return paramiko.Ed25519Key.from_private_key(StringIO(self.private))

    def __repr__(self) -> str:
        return f"KeyPair({self.public.strip()!r})"


@dataclass(frozen=True)
class LabKeys:
    """Who may log in (``user``) and by which key a machine proves itself (``host``)."""

    user: KeyPair
    host: KeyPair

    @classmethod
    def generate(cls) -> "LabKeys":
        """Make the keys of a new lab."""
        return cls(user=KeyPair.generate(), host=KeyPair.generate())
