"""The value of --cluster: what it means, and what is refused."""

from pathlib import Path

import pytest

from raidproof.cluster.spec import ClusterSpec
from raidproof.core.errors import RequestError


def test_local_workers() -> None:
    assert ClusterSpec.read("local:4") == ClusterSpec(kind="local", size=4)


@pytest.mark.parametrize("address", ["tls://scheduler:8786", "tcp://127.0.0.1:8786", "tcp://localhost:8786"])
def test_a_scheduler(address: str) -> None:
    assert ClusterSpec.read(address) == ClusterSpec(kind="address", address=address)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('kind = "slurm"\nsize = 20\nshared = "/scratch"\n[arguments]\nqueue = "long"\ncores = 8\n')
    spec = ClusterSpec.read(str(path))
    assert (spec.kind, spec.size, spec.shared) == ("slurm", 20, Path("/scratch"))
    assert spec.arguments == {"queue": "long", "cores": 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local:many", "not a number of workers"),
        ("local:0", "not a number of workers"),
        ("four", "not a cluster"),
        ("tcp://10.0.0.1:8786", "must have TLS"),
        ("ucx://10.0.0.1:8786", "not the address of a scheduler"),
        ("no-such.toml", "no-such.toml cannot be read"),
    ],
)
def test_what_is_no_cluster(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        ClusterSpec.read(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('kind = "slrum"', "did you mean 'slurm'"),
        ('kind = "slurm"\nsizes = 3', "sizes: Extra inputs"),
        ('kind = "slurm"\nsize = 0', "size: Input should be greater"),
        ('kind = "address"\naddress = "tcp://scheduler:8786"', "must have TLS"),
        ("kind = ", "not a valid TOML file"),
    ],
)
def test_a_file_with_an_error(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(content)
    with pytest.raises(RequestError, match=message):
        ClusterSpec.read(str(path))
