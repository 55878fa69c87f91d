"""PDF and office documents in requests: their text is looked through, masked or refused like other texts."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.support.documents import DOCX, PPTX, XLSX, data_url, docx, pdf, pptx, xlsx
from tests.support.guardrails_in_force import forbid, guard, violations
from tests.support.upstream import Caller, settle_all

PDF = "application/pdf"


def files(caller: Caller, *documents: tuple[bytes, str, str], tag: str = "t") -> Any:
    """Ask about files: content, type, name."""
    parts = [
        {"type": "file", "file": {"file_data": data_url(data, kind), "filename": name}}
        for data, kind, name in documents
    ]
    return caller.chat([{"type": "text", "text": f"read [[sandbox tag={tag}]]"}, *parts])


def test_by_default_agents_files_pass(caller: Caller) -> None:
    guard(caller, rules={"file_types": "block", "unreadable_files": "block"})
    answer = files(
        caller,
        (pdf("harmless"), PDF, "a.pdf"),
        (docx("harmless"), DOCX, "a.docx"),
        (xlsx("harmless", "too"), XLSX, "a.xlsx"),
        (pptx("harmless"), PPTX, "a.pptx"),
        (b"a,b\n1,2\n", "text/csv", "a.csv"),
        (b"print(1)\n", "text/x-python", "a.py"),
        (b'{"a": 1}', "application/json", "a.json"),
        (b"# Title\n", "text/markdown", "a.md"),
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (pdf("about zanzibar"), PDF),
        (docx("about zanzibar"), DOCX),
        (docx("fine", header2="about zanzibar"), DOCX),
        (xlsx("about zanzibar", "x"), XLSX),
        (pptx("one", "about zanzibar"), PPTX),
        (pdf("fine", title="zanzibar"), PDF),
        # Called what it is not.
        (pdf("about zanzibar"), "application/octet-stream"),
    ],
)
def test_a_rule_reads_the_text_of_a_document(caller: Caller, data: bytes, kind: str) -> None:
    guard(caller)
    forbid(caller, "zanzibar")
    tag = uuid4().hex
    refused = files(caller, (data, kind, "a"), tag=tag)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "guardrail_blocked")
    assert "in messages[0].content[1]" in refused.json()["error"]["message"]
    assert caller.sent(tag) == []


def test_a_masked_document_becomes_its_text(caller: Caller) -> None:
    guard(caller, rules={"pii_detection": "redact"})
    tag = uuid4().hex
    document = docx("write to ann.lee@zanzibar-post.com", "soon")
    assert files(caller, (document, DOCX, "letter.docx"), tag=tag).status_code == 200
    [sent] = caller.sent(tag)
    [_, part] = sent["body"]["messages"][0]["content"]
    assert part == {
        "type": "text",
        "text": "[Text of letter.docx; a guardrail masked parts of it]\nwrite to [EMAIL_1]\nsoon\n",
    }


def test_a_document_without_findings_is_sent_as_it_is(caller: Caller) -> None:
    guard(caller, rules={"pii_detection": "redact"})
    tag = uuid4().hex
    document = pdf("nothing here")
    assert files(caller, (document, PDF, "a.pdf"), tag=tag).status_code == 200
    [sent] = caller.sent(tag)
    assert sent["body"]["messages"][0]["content"][1]["file"]["file_data"] == data_url(document, PDF)


@pytest.mark.parametrize(("action", "status", "taken"), [("warn", 200, "warned"), ("block", 400, "blocked")])
def test_an_unreadable_document_is_treated_as_its_rule_says(
    caller: Caller, action: str, status: int, taken: str
) -> None:
    guard(caller, rules={"unreadable_files": action})
    broken = pdf("secret")[:300]
    assert files(caller, (broken, PDF, "a.pdf")).status_code == status
    settle_all()
    reason = "the file cannot be looked through: it cannot be read (PdfStreamError)"
    assert [one[:3] for one in violations()] == [("system:unreadable_files", taken, reason)]


def test_images_and_sound_are_no_unreadable_documents(caller: Caller) -> None:
    guard(caller, rules={"unreadable_files": "block"})
    image = data_url(b"\x89PNG\r\n\x1a\n" + bytes(32), "image/png")
    assert caller.chat([{"type": "image_url", "image_url": {"url": image}}]).status_code == 200
