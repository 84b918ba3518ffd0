import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from raidproof.cli.main import ORDER, app, main
from raidproof.cli.reference import man
from raidproof.core.errors import Status

GROUP = typer.main.get_command(app)
HOME = Path(__file__).resolve().parents[3]
STORED = HOME / "docs" / "man" / "raidproof.1"


def test_the_stored_page_is_the_programs() -> None:
    assert STORED.read_text() == man.page(GROUP), "run python docs/site/write.py"


def test_the_page_has_every_command_option_and_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man"]) == Status.PASS
    text = capsys.readouterr().out
    for name in ORDER:
        assert f"\n.SS {man.escaped(name)}" in text
    assert "\n.SS findings list " in text
    assert "\n.B \\-\\-dry\\-run\n" in text
    for status in Status:
        assert f"\n.B {int(status)}\n" in text


def test_the_order_is_that_of_the_help() -> None:
    names = [one.name for one in man.commands(GROUP) if " " not in one.name]
    assert names == ["raidproof", *ORDER]


def test_special_characters_are_escaped() -> None:
    assert man.escaped(".x\n'a' -- \\") == "\\&.x\n\\(aqa\\(aq \\-\\- \\e"


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_groff_reads_the_page_without_a_warning(tmp_path: Path) -> None:
    words = ["groff", "-man", "-Tutf8", "-ww"]
    ended = subprocess.run([*words, STORED], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert "--dry-run" in re.sub(r".\x08|\x1b\[[0-9;]*m", "", ended.stdout)
    broken = tmp_path / "broken.1"
    broken.write_text(STORED.read_text() + ".NOSUCHMACRO x\n")
    assert subprocess.run([*words, broken], capture_output=True, text=True, check=False).stderr


def test_a_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", "--write", str(tmp_path / "raidproof.1")]) == Status.PASS
    assert (tmp_path / "raidproof.1").read_text() == man.page(GROUP)
    assert main(["man", "--write", str(tmp_path / "no" / "raidproof.1")]) == Status.BAD_REQUEST
    assert "cannot write" in capsys.readouterr().err
