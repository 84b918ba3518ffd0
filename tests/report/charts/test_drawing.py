from pathlib import Path

import pytest
import vl_convert

from raidproof.report.charts import drawing


def _bundles(monkeypatch: pytest.MonkeyPatch, cache: Path) -> list[str]:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(cache))
    bundled: list[str] = []

    def bundle(snippet: str) -> str:
        bundled.append(snippet)
        return "vegaEmbed"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    return bundled


def test_the_script_is_made_once_for_all_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundled = _bundles(monkeypatch, tmp_path)
    first = drawing.script.__wrapped__()
    assert drawing.script.__wrapped__() == first
    assert len(bundled) == 1


def test_the_script_of_another_version_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundled = _bundles(monkeypatch, tmp_path)
    drawing.script.__wrapped__()
    monkeypatch.setattr(drawing, "version", lambda _name: "another")
    drawing.script.__wrapped__()
    assert len(bundled) == 2


def test_without_a_cache_the_script_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bundled = _bundles(monkeypatch, tmp_path / "file")
    assert drawing.script.__wrapped__()
    assert len(bundled) == 1
