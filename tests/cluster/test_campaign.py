"""The files of a campaign arrive on a worker as they were, or not at all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raidproof.cluster import campaign as module
from raidproof.cluster.campaign import Campaign, digest_of, require_portable
from raidproof.cluster.proof import Unsound
from raidproof.core.errors import RequestError, RigError
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.run.demo import demo_topology

FILES = {"report.json": b"{}", "sync/write.log": b"log"}


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "require_host", lambda: None)
    monkeypatch.setattr(module, "software_digest", lambda _: "kernel and image")

    class Source:
        topology = None

        def __init__(
            self, store: Any, cycle: str, *, starts_dirty: bool, lost_member: str | None, scrub: bool
        ) -> None:
            self.path = store.path

    monkeypatch.setattr(module, "source_of", Source)
    digests = {name: digest_of(content) for name, content in FILES.items()}
    return Campaign("run", "sync", False, None, False, digests=digests, files=FILES, software="kernel and image")


def written(campaign: Campaign) -> dict[str, bytes]:
    folder: Path = campaign.prepared().path  # type: ignore[attr-defined]
    return {name: (folder / name).read_bytes() for name in FILES}


def test_the_files_are_those_of_the_client(campaign: Campaign) -> None:
    assert written(campaign) == FILES


def test_the_files_of_a_shared_folder(campaign: Campaign, tmp_path: Path) -> None:
    shared = replace(campaign, files={}, shared=str(tmp_path))
    for name, content in FILES.items():
        path = tmp_path / shared.digest / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert shared.digest == campaign.digest
    assert written(shared) == FILES


def test_a_file_that_was_changed_on_the_way_is_refused(campaign: Campaign) -> None:
    changed = replace(campaign, files={**FILES, "sync/write.log": b"lag"})
    with pytest.raises(RigError, match=r"sync/write\.log of run run differs"):
        changed.prepared()


def test_another_kernel_is_refused(campaign: Campaign) -> None:
    with pytest.raises(Unsound, match="kernel or image differs"):
        replace(campaign, software="another kernel").prepared()


def test_other_content_is_another_campaign(campaign: Campaign) -> None:
    assert replace(campaign, digests={**campaign.digests, "report.json": "0"}).digest != campaign.digest
    assert replace(campaign, lost_member="disk1").digest != campaign.digest


@pytest.mark.parametrize(
    "software",
    [SoftwareSpec(kernel="./linux"), SoftwareSpec(packages=("/home/user/mdadm.deb",)), SoftwareSpec(image="./image")],
)
def test_software_of_the_clients_host_is_refused(software: SoftwareSpec) -> None:
    topology = demo_topology(Platform(server=software))
    with pytest.raises(RequestError, match="is a file of this host"):
        require_portable(topology)


def test_software_that_each_worker_can_fetch_is_accepted() -> None:
    require_portable(demo_topology(Platform(server=SoftwareSpec(kernel="debian/trixie", image="debian/trixie"))))
