import pytest

from raidproof.disk.drive_model import FLASH, ROTATING, drive_model, logical_drive
from raidproof.disk.profile import load_profile


@pytest.mark.parametrize(
    ("model", "profile", "protected"),
    [
        ("ST4000NM0035-1V4107", "hdd-7200-sata", False),
        ("ATA ST8000NM000A-2KE1", "hdd-7200-sata", False),
        ("HGST HUS726T4TALA6L4", "hdd-7200-sata", False),
        ("WDC WD40EFRX-68N32N0", "hdd-7200-sata", False),
        ("TOSHIBA MG04ACA400N", "hdd-7200-sata", False),
        ("ST1200MM0099", "seagate-st3146707lc", False),
        ("ST300MP0006", "scsi-15k-72gb", False),
        ("ST3146707LC", "seagate-st3146707lc", False),
        ("Samsung SSD 870 EVO 1TB", "ssd-sata", False),
        ("Samsung SSD 990 PRO 4TB", "ssd-sata", False),
        ("INTEL SSDSC2KB960G8", "ssd-sata", True),
        ("Micron_5300_MTFDDAK960TDS", "ssd-sata", True),
        ("SAMSUNG MZQL23T8HCLS-00A07", "nvme-plp", True),
        ("Micron_7450_MTFDKCC3T8TFR", "nvme-plp", True),
    ],
)
def test_a_model_has_its_profile(model: str, profile: str, protected: bool) -> None:
    found = drive_model(model)
    assert found is not None
    assert (found.profile, found.protected) == (profile, protected)
    assert load_profile(found.profile).timed
    assert found.source
    assert logical_drive(model) is None


def test_an_unknown_model_has_no_profile() -> None:
    assert drive_model("ACME 1000") is None
    assert load_profile(ROTATING).rotational
    assert load_profile(FLASH).flash


@pytest.mark.parametrize(
    ("model", "vendor"),
    [
        ("PERC H730 Mini", "DELL"),
        ("PERC_H755_Front", ""),
        ("MR9361-8i", "AVAGO"),
        ("LOGICAL VOLUME", "HP"),
        ("MegaRAID 9560-8i", "BROADCOM"),
        ("ARC-1883-VOL#00", "Areca"),
    ],
)
def test_a_logical_drive_of_a_controller_is_recognized(model: str, vendor: str) -> None:
    assert logical_drive(model, vendor)
