"""Texts of PDF and office documents, and the bounds on reading them."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from apps.guardrails.files import document_text
from apps.guardrails.files.document_text import DocumentText, read_document_text
from tests.support.documents import archive, docx, odt, pdf, pptx, xlsx


def words(data: bytes) -> list[str]:
    """Return the words of a document that can be read."""
    read = read_document_text(data)
    assert read.unread == ""
    return read.text.split()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (pdf("first page", "second page", title="Plan"), "Plan first page second page"),
        (docx("one", "two &amp; three", header1="head", footnotes="note"), "one two & three note head"),
        (xlsx("shared", "inline"), "shared 0 inline 4711"),
        (pptx("slide one", "slide two"), "slide one slide two"),
        (pptx(*(f"number{n}" for n in range(1, 12))), " ".join(f"number{n}" for n in range(1, 12))),
        (odt("one", "two"), "one two"),
    ],
    ids=["pdf", "docx", "xlsx", "pptx", "slides in order", "odt"],
)
def test_the_text_of_a_document(data: bytes, expected: str) -> None:
    assert sorted(words(data)) == sorted(expected.split())


def test_slides_come_in_their_order() -> None:
    assert words(pptx(*(f"n{n}" for n in range(1, 12)))) == [f"n{n}" for n in range(1, 12)]


def test_words_of_one_paragraph_stay_together() -> None:
    runs = "<w:p><w:r><w:t>sec</w:t></w:r><w:r><w:t>ret</w:t></w:r></w:p>"
    name = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    document = f'<w:document xmlns:w="{name}">{runs}</w:document>'
    assert words(archive({"[Content_Types].xml": "<T/>", "word/document.xml": document})) == ["secret"]


@pytest.mark.parametrize(
    ("data", "unread"),
    [
        (pdf("x")[:300], "it cannot be read (PdfStreamError)"),
        (archive({"[Content_Types].xml": "<T/>", "word/document.xml": "<w"}), "it cannot be read (ParseError)"),
        (
            archive(
                {
                    "[Content_Types].xml": "<T/>",
                    "word/document.xml": '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>',
                }
            ),
            "it cannot be read (DTDForbidden)",
        ),
        (archive({"a.txt": "hello"}), "files of type application/zip are not looked through"),
        (docx("x")[:200], "it cannot be read (BadZipFile)"),
        (b"\0\1\2", "files of type application/octet-stream are not looked through"),
    ],
    ids=["cut pdf", "broken xml", "entities", "zip", "cut docx", "bytes"],
)
def test_a_document_that_cannot_be_read_says_why(data: bytes, unread: str) -> None:
    assert read_document_text(data) == DocumentText(unread=unread)


class TestBounds:
    def test_of_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(document_text, "MAX_PAGES", 2)
        assert words(pdf("one", "two")) == ["one", "two"]
        assert read_document_text(pdf("one", "two", "three")).unread == "it has more than 2 pages"
        assert read_document_text(pptx("one", "two", "three")).unread == "it has more than 2 parts"

    def test_of_characters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(document_text, "MAX_CHARACTERS", 10)
        for data in (pdf("twelve chars"), docx("twelve chars")):
            assert read_document_text(data).unread == "its text has more than 10 characters"

    def test_of_unpacked_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(document_text, "MAX_UNPACKED", 1_000_000)
        bomb = docx(*(" " * 1_000 for _ in range(2_000)))
        assert len(bomb) < 20_000
        assert read_document_text(bomb).unread == "it has more than 1000000 bytes unpacked"

    def test_of_a_stream_of_a_pdf(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(document_text, "_MAX_STREAM", 1_000_000)
        bomb = pdf(stream=b" " * 3_000_000)
        assert len(bomb) < 20_000
        assert read_document_text(bomb).unread == "a part of it has more than 1000000 bytes, or it nests too deeply"

    def test_of_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(document_text, "MAX_SECONDS", -1.0)
        for data in (pdf("one"), docx("one")):
            assert read_document_text(data).unread == "it takes more than -1 s to read"

    def test_encrypted_documents(self) -> None:
        data = bytearray(docx("one"))
        for sign, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            at = data.rfind(sign)
            data[at + flags] |= 1
        assert read_document_text(bytes(data)).unread == "it is encrypted"


class TestKeptTexts:
    def test_a_document_is_read_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[bytes] = []

        def count(data: bytes) -> DocumentText:
            read.append(data)
            return DocumentText("x" * 10)

        monkeypatch.setattr(document_text, "read_document_text", count)
        monkeypatch.setattr(document_text, "_texts", OrderedDict())
        monkeypatch.setattr(document_text, "_size", 0)
        monkeypatch.setattr(document_text, "MAX_KEPT_CHARACTERS", 2 * 510)
        one, two, three = (f"only here {number}".encode() for number in range(3))
        for data in (one, one, two, one, three, one, two):
            assert document_text.document_text(data).text == "x" * 10
        # The least recently used went for the third.
        assert read == [one, two, three, two]
        assert document_text._size <= document_text.MAX_KEPT_CHARACTERS
