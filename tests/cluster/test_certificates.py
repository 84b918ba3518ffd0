"""The certificates of a cluster: only who has them is served."""

import ssl
from pathlib import Path
from typing import Any

import distributed
import pytest

from raidproof.cluster.certificates import KEY, create, security_of
from raidproof.cluster.connection import connected
from raidproof.cluster.spec import ClusterSpec
from raidproof.core.errors import RequestError, RigError

dask: Any = distributed


def twice(number: int) -> int:
    return 2 * number


def test_only_the_owner_can_read_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    create(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_certificates_are_not_replaced(tmp_path: Path) -> None:
    create(tmp_path)
    before = (tmp_path / KEY).read_bytes()
    with pytest.raises(RequestError, match="has certificates already"):
        create(tmp_path)
    assert (tmp_path / KEY).read_bytes() == before


def test_missing_certificates_are_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"ca\.pem.*cluster certs"):
        security_of(tmp_path)


def test_a_client_without_the_certificates_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, others = tmp_path / "ours", tmp_path / "others"
    create(ours)
    create(others)
    with dask.LocalCluster(
        n_workers=1,
        processes=False,
        protocol="tls",
        host="127.0.0.1",
        security=security_of(ours),
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        spec = ClusterSpec(kind="address", address=cluster.scheduler_address, certificates=ours)
        assert spec.address is not None
        assert spec.address.startswith("tls://")
        with connected(spec) as client:
            assert client.submit(twice, 21).result(timeout=20) == 42
        monkeypatch.setattr("raidproof.cluster.connection.CONNECT_S", 2)
        with pytest.raises((RigError, ssl.SSLError)), connected(spec.model_copy(update={"certificates": others})):
            pass
        with pytest.raises((OSError, ValueError, TypeError, RuntimeError)):
            dask.Client(cluster.scheduler_address, timeout=2, set_as_default=False)
