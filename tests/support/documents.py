"""Documents made for tests: PDF, OOXML and OpenDocument with given texts."""

from __future__ import annotations

import io
import zipfile
import zlib
from base64 import b64encode

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
ODT = "application/vnd.oasis.opendocument.text"


def pdf(*pages: str, title: str = "", stream: bytes | None = None) -> bytes:
    """Return a PDF with a line of text on each page; `stream` is the content of its only page instead."""
    contents = [f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET".encode("latin-1") for page in pages]
    contents = contents if stream is None else [stream]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, content in enumerate(contents):
        packed = zlib.compress(content)
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            + f"/Contents {5 + 2 * number} 0 R >>".encode(),
            f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n".encode() + packed + b"\nendstream",
        ]
    objects.append(f"<< /Title ({title}) >>".encode("latin-1"))
    written, places = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"), []
    for number, one in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj\n".encode() + one + b"\nendobj\n"
    start = len(written)
    written += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    written += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    size = len(objects) + 1
    written += f"trailer\n<< /Size {size} /Root 1 0 R /Info {len(objects)} 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(written)


def archive(parts: dict[str, str]) -> bytes:
    """Return a zip archive of parts."""
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as written:
        for name, part in parts.items():
            written.writestr(name, part)
    return kept.getvalue()


def docx(*paragraphs: str, **parts: str) -> bytes:
    """Return a document of Word with paragraphs, and further parts by their names in `word/`."""
    name = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    document = f'<w:document xmlns:w="{name}"><w:body>{body}</w:body></w:document>'
    others = {
        f"word/{part}.xml": f'<w:x xmlns:w="{name}"><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:x>'
        for part, text in parts.items()
    }
    return archive({"[Content_Types].xml": "<Types/>", "word/document.xml": document, **others})


def xlsx(*cells: str) -> bytes:
    """Return a workbook of Excel: the first cells as shared strings, the last as a text within its sheet."""
    name = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    shared = "".join(f"<si><t>{cell}</t></si>" for cell in cells[:-1])
    row = f'<row><c t="s"><v>0</v></c><c t="inlineStr"><is><t>{cells[-1]}</t></is></c><c><v>4711</v></c></row>'
    return archive(
        {
            "[Content_Types].xml": "<Types/>",
            "xl/sharedStrings.xml": f'<sst xmlns="{name}">{shared}</sst>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{name}"><sheetData>{row}</sheetData></worksheet>',
        }
    )


def pptx(*slides: str) -> bytes:
    """Return a presentation of PowerPoint with a text on each slide."""
    name = "http://schemas.openxmlformats.org/drawingml/2006/main"
    parts = {
        f"ppt/slides/slide{number}.xml": f'<p xmlns:a="{name}"><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p>'
        for number, text in enumerate(slides, 1)
    }
    return archive({"[Content_Types].xml": "<Types/>", **parts})


def odt(*paragraphs: str) -> bytes:
    """Return a text of OpenDocument with paragraphs."""
    name = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
    body = "".join(f"<text:p>{text}</text:p>" for text in paragraphs)
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as written:
        written.writestr("mimetype", ODT)
        written.writestr("content.xml", f'<office xmlns:text="{name}">{body}</office>')
    return kept.getvalue()


def data_url(data: bytes, kind: str) -> str:
    """Return a file as a data URL."""
    return f"data:{kind};base64,{b64encode(data).decode()}"
