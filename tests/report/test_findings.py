import re
from pathlib import Path

from rich.console import Console

from raidproof.core.waiting import wall_clock
from raidproof.record.finding import Answer, FindingsRecord, KernelAnswer, load_findings
from raidproof.report.findings import anchor, document, show_list, show_matrix

HOME = Path(__file__).resolve().parents[2]
FINDINGS = load_findings(HOME / "findings")


def test_the_document_is_up_to_date() -> None:
    assert (HOME / "docs" / "findings.md").read_text() == document(FINDINGS), "run ./raidproof findings docs"


def test_a_change_of_a_finding_changes_the_document() -> None:
    other = [FINDINGS[0].model_copy(update={"wrong": "nothing"}), *FINDINGS[1:]]
    assert document(other) != document(FINDINGS)


def test_the_document_has_each_finding_and_each_link_has_a_heading() -> None:
    text = document(FINDINGS)
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == [one.title for one in FINDINGS]
    assert {anchor(one) for one in headings} == set(re.findall(r"\]\(#([^)]+)\)", text))


def test_the_anchor_is_that_of_markdown() -> None:
    assert anchor("QEMU 7.2's emulation: close() lets") == "qemu-72s-emulation-close-lets"


def test_lists_keep_their_indent_in_the_document() -> None:
    text = document(FINDINGS)
    assert "\n  1. Client 1 reclaims its open" in text
    assert "\n  | instant | request |\n" in text


def printed(show: object, *what: object) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    show(*what, console)  # type: ignore[operator]
    return console.export_text()


def test_the_list_names_each_finding() -> None:
    text = printed(show_list, FINDINGS)
    assert [one.id for one in FINDINGS if one.id not in text] == []


def test_the_matrix_has_an_answer_for_each_kernel_and_its_reason() -> None:
    record = FindingsRecord(
        started=wall_clock(),
        command=["./raidproof"],
        kernels=("debian/bookworm", "debian/sid"),
        patched=True,
        findings=("md-a", "md-b"),
        answers=[
            KernelAnswer(
                finding="md-a",
                kernel="debian/bookworm",
                release="6.1.176",
                answer=Answer.NOT_AFFECTED,
                reason="0 of 40 [red]",
            ),
            KernelAnswer(finding="md-a", kernel="debian/sid", answer=Answer.UNDECIDED, reason="no reproducer: once"),
        ],
    )
    text = printed(show_matrix, record, Path("results/x/findings.json"))
    assert re.search(r"^ ?md-a +not affected +undecided", text, re.MULTILINE)
    assert "md-a, debian/bookworm + patch (6.1.176): not affected: 0 of 40 [red]" in text
    assert "md-a, debian/sid + patch: undecided: no reproducer: once" in text
    assert "stored: results/x/findings.json" in text
