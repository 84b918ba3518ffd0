"""Certificates of TLS."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from raidproof.core.certificate import builder, key_as_pem, name_of, new_key, pem_of
from raidproof.core.waiting import wall_clock


def test_a_certificate_has_what_was_requested() -> None:
    authority, key, now = new_key(), new_key(), wall_clock().replace(microsecond=0)
    dates = (now, now + timedelta(days=2))
    made = builder(name_of("one"), name_of("authority"), key.public_key(), dates).sign(authority, hashes.SHA256())
    read = x509.load_pem_x509_certificate(pem_of(made).encode())
    assert read == made
    assert (read.subject, read.issuer) == (name_of("one"), name_of("authority"))
    assert (read.not_valid_before_utc, read.not_valid_after_utc) == dates
    assert load_pem_private_key(key_as_pem(key).encode(), None).public_key() == read.public_key() == key.public_key()


def test_each_key_and_each_serial_number_is_new() -> None:
    keys = [new_key(), new_key()]
    assert len({key_as_pem(key) for key in keys}) == 2
    dates = (wall_clock(), wall_clock() + timedelta(days=1))
    made = [
        builder(name_of("a"), name_of("a"), keys[0].public_key(), dates).sign(keys[0], hashes.SHA256()) for _ in "ab"
    ]
    assert made[0].serial_number != made[1].serial_number


def test_an_end_before_the_begin_is_refused() -> None:
    now, key = wall_clock(), new_key()
    with pytest.raises(ValueError, match="before"):
        builder(name_of("a"), name_of("a"), key.public_key(), (now, now - timedelta(days=1)))
