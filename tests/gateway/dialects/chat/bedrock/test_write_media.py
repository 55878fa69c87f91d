"""Pictures, sound, video and documents written for Bedrock: as the bytes that they are, under names that it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Audio, Chat, File, Image, Message, Part, Target, Text, ToolCall, ToolResult
from apps.gateway.dialects.chat import bedrock
from apps.kernel.errors import InvalidRequest

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"


def written(chat: Chat) -> dict[str, Any]:
    return dict(json.loads(bedrock.write_request(chat, Target(model_name="m", facts={}))))


def said(*parts: Part) -> dict[str, Any]:
    """Return the turn that a user's message of these parts becomes."""
    return dict(written(Chat(model="m", messages=[Message(role="user", parts=list(parts))]))["messages"][-1])


@pytest.mark.parametrize(
    "part",
    [
        Image(url="data:image/tiff;base64,SUkqAA=="),
        Image(url="data:image/png,plain"),
        Image(url="data:image/png;base64,"),
        Image(url="data:image/png;base64,a*b"),
        File(data="data:application/zip;base64,UEsDBA=="),
        File(data="AAAA"),
        File(url="s3://bucket/a.pdf"),
        Audio(data="AAAA", format="midi"),
        ToolResult(call_id="c1", parts=[Audio(data="AAAA", format="wav")]),
    ],
)
def test_media_that_bedrock_does_not_take_are_refused(part: Part) -> None:
    call = Message(role="assistant", parts=[ToolCall(id="c1", name="f", arguments="")])
    role: Any = "tool" if isinstance(part, ToolResult) else "user"
    messages = [call] if role == "tool" else []
    with pytest.raises(InvalidRequest) as refusal:
        written(Chat(model="m", messages=[*messages, Message(role=role, parts=[part])]))
    assert refusal.value.param == f"messages[{len(messages)}].content[0]"


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Image(url=f"data:;base64,{PNG}"), {"image": {"format": "png", "source": {"bytes": PNG}}}),
        (Image(url="data:image/png;base64,R0lGODlh"), {"image": {"format": "gif", "source": {"bytes": "R0lGODlh"}}}),
        (
            Image(url="data:image/png;base64,UklGRgAAAABXRUJQ"),
            {"image": {"format": "webp", "source": {"bytes": "UklGRgAAAABXRUJQ"}}},
        ),
        (Image(url="DATA:image/JPG;base64,_-8"), {"image": {"format": "jpeg", "source": {"bytes": "/+8="}}}),
        (File(data=PNG, filename="a.pdf"), {"image": {"format": "png", "source": {"bytes": PNG}}}),
        (File(data="data:video/mp4;base64,AAAA"), {"video": {"format": "mp4", "source": {"bytes": "AAAA"}}}),
        (Audio(data="AA AA", format="pcm16"), {"audio": {"format": "pcm", "source": {"bytes": "AAAA"}}}),
    ],
)
def test_media_are_what_their_bytes_say(part: Part, block: dict[str, Any]) -> None:
    assert said(part) == {"role": "user", "content": [block]}


@pytest.mark.parametrize(
    ("file", "word", "name"),
    [
        (File(data="JVBERi0x", filename="x.txt"), "pdf", "x"),
        (File(data="AAAA", filename="Ärger_1.docx"), "docx", "rger 1"),
        (File(data="AAAA", filename="a" * 300 + ".md"), "md", "a" * 192),
        (File(data="AAAA", media_type="text/x-python"), "txt", "document"),
        (File(data="data:text/HTML;charset=utf-8;base64,AAAA", filename="///"), "html", "document"),
    ],
)
def test_documents_have_a_kind_and_a_name_that_bedrock_takes(file: File, word: str, name: str) -> None:
    document, text = said(file)["content"]
    assert (document["document"]["format"], document["document"]["name"]) == (word, name)
    assert text == {"text": "."}


def test_a_documents_name_is_used_once_in_a_request() -> None:
    files = [File(data="JVBERi0x", filename=name) for name in ("a.pdf", "a 2.pdf", "a.pdf")]
    names = [block["document"]["name"] for block in said(Text(text="?"), *files)["content"][1:]]
    assert names == ["a", "a 2", "a 3"]
