"""The answer's fields of a record: exact, within their bounds, and without a second copy of any text."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Reasoning
from apps.gateway.canonical.events import AudioDelta, Choice, Reply, WholeCall
from apps.gateway.canonical.task_options import Speech
from apps.gateway.settlement import record as request_record
from apps.gateway.settlement.record import MAX_CALLED_NAMES, count_call, keep_answer
from apps.logs.answers import choices_of, read_medium
from apps.logs.entry import Entry
from tests.logs.entries import entry

CHAT = Chat(model="m", messages=[], speech=Speech(voice="alloy"))
PNG = b"\x89PNG\r\n\x1a\npixels"
URL = f"data:image/png;base64,{b64encode(PNG).decode()}"


def kept(*choices: Choice, speech: bytes | None = None) -> Entry:
    record = entry()
    keep_answer(record, CHAT, Reply(choices=list(choices)), speech)
    return record


def choices_in(record: Entry) -> list[dict[str, Any]]:
    return choices_of({name: getattr(record, name) for name in ("choices", "content", "refusal")})


def test_a_plain_answer_fills_its_content_alone() -> None:
    record = kept(Choice(text="hi"))
    fields = (record.refusal, record.tool_calls, record.choices, record.citations, record.media, record.media_data)
    assert (record.content, fields) == ("hi", (None,) * 6)


def test_each_choice_has_its_own_texts_and_calls() -> None:
    call = WholeCall(id="c1", name="find", arguments='{"a": 1}')
    record = kept(
        Choice(text="one\ntwo", finish="stop", native_finish="end_turn"),
        Choice(tool_calls=[call], finish="tool_calls"),
        Choice(text="", refusal="no", finish="content_filter"),
        Choice(text="🌍", refusal="never"),
    )
    assert (record.content, record.refusal) == ("one\ntwo\n\n🌍", "no\nnever")
    assert choices_in(record) == [
        {"index": 0, "finishReason": "end_turn", "content": "one\ntwo", "refusal": None},
        {"index": 1, "finishReason": "tool_calls", "content": None, "refusal": None},
        {"index": 2, "finishReason": "content_filter", "content": "", "refusal": "no"},
        {"index": 3, "finishReason": None, "content": "🌍", "refusal": "never"},
    ]
    assert record.tool_calls == [{"id": "c1", "name": "find", "arguments": '{"a": 1}', "choice": 1}]
    assert "two" not in str(record.choices)


def test_what_is_too_long_is_cut_with_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"MAX_ARGUMENTS": 4, "MAX_ALL_ARGUMENTS": 6, "MAX_CALLS": 3, "MAX_REFUSAL": 2, "MAX_CITATIONS": 1}
    for name, value in limits.items():
        monkeypatch.setattr(request_record, name, value)
    calls = [WholeCall(id=str(number), name="f", arguments="abcde") for number in range(4)]
    annotation = {"type": "url_citation", "url_citation": {"url": "https://a.example"}}
    record = kept(Choice(refusal="abc", tool_calls=calls, annotations=[annotation, annotation]))
    assert record.refusal == "ab… [1 more characters]"
    assert record.tool_calls == [
        {"id": "0", "name": "f", "arguments": "abcd… [1 more characters]"},
        {"id": "1", "name": "f", "arguments": "… [5 more characters]"},
        {"id": "2", "name": "f", "arguments": "… [5 more characters]"},
        {"omitted": 1},
    ]
    assert record.citations == [annotation, {"omitted": 1}]


def test_a_citation_that_is_too_large_leaves_its_size() -> None:
    record = kept(Choice(annotations=[{"type": "file_citation", "text": "x" * 20_000}]))
    assert record.citations == [{"type": "file_citation", "omittedBytes": 20_034}]


def test_images_and_audio_are_stored_in_order_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_record, "MAX_MEDIA_BYTES", 2 * len(PNG))
    audio = AudioDelta(data=b64encode(b"RIFF1234").decode(), transcript="hello")
    record = kept(Choice(images=[URL, "https://a.example/cat.png", URL], audio=audio), Choice(images=[URL]))
    image = {"kind": "image", "contentType": "image/png", "size": len(PNG)}
    assert record.media == [
        {**image, "stored": True},
        {"kind": "image", "url": "https://a.example/cat.png", "stored": False},
        {**image, "stored": True},
        {"kind": "audio", "contentType": "audio/mpeg", "transcript": "hello", "size": 8, "stored": False},
        {**image, "choice": 1, "stored": False},
    ]
    read = [read_medium(record.id, record.media, record.media_data, number) for number in range(-1, 6)]
    assert read == [None, ("image/png", PNG), None, ("image/png", PNG), None, None, None]


def test_media_are_readable_in_their_own_row_alone() -> None:
    record = kept(Choice(), speech=b"ID3 sound")
    assert read_medium(record.id, record.media, record.media_data, 0) == ("audio/mpeg", b"ID3 sound")
    assert read_medium(entry().id, record.media, record.media_data, 0) is None
    assert b"sound" not in (record.media_data or "").encode()


def test_names_of_called_tools_are_bounded() -> None:
    counts: dict[str, int] = {}
    for number in range(MAX_CALLED_NAMES + 2):
        count_call(counts, f"tool-{number}")
    count_call(counts, "tool-0")
    assert (len(counts), counts["tool-0"], counts["…"]) == (MAX_CALLED_NAMES + 1, 2, 2)


def test_bounds_are_those_of_whole_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MAX_ARGUMENTS": 4, "MAX_REFUSAL": 3, "MAX_CALLS": 1, "MAX_CITATIONS": 1}.items():
        monkeypatch.setattr(request_record, name, value)
    call, citation = WholeCall(id="i" * 256, name="n" * 256, arguments="abcd"), {"type": "url_citation"}
    record = kept(Choice(refusal="abc", tool_calls=[call], annotations=[citation]))
    assert (record.refusal, record.citations) == ("abc", [citation])
    assert record.tool_calls == [{"id": "i" * 255, "name": "n" * 255, "arguments": "abcd"}]


def test_a_citation_of_the_most_bytes_is_kept_and_calls_and_citations_name_their_choice() -> None:
    largest = {"type": "t", "text": "x" * (16_384 - len('{"type":"t","text":""}'))}
    call = WholeCall(id="c", name="f", arguments="{}")
    record = kept(Choice(annotations=[largest], tool_calls=[call]), Choice(annotations=[largest], tool_calls=[call]))
    assert record.citations == [largest, {"type": "t", "omittedBytes": 16_384 + len(',"choice":1')}]
    told = {"id": "c", "name": "f", "arguments": "{}"}
    assert record.tool_calls == [told, {**told, "choice": 1}]


@pytest.mark.parametrize(
    ("choices", "outlined"),
    [
        ([Choice(text="a")], False),
        ([Choice(), Choice()], False),
        ([Choice(), Choice(text="a")], True),
        ([Choice(), Choice(refusal="no")], True),
        ([Choice(tool_calls=[WholeCall(id="c", name="f", arguments="")]), Choice()], True),
    ],
)
def test_choices_are_outlined_where_there_are_several_with_something_in_them(
    choices: list[Choice], outlined: bool
) -> None:
    assert (kept(*choices).choices is not None) is outlined


def test_what_is_no_base64_is_stored_as_nothing_and_an_answer_without_sound_has_none() -> None:
    record = kept(Choice(images=["data:image/gif;charset=x;base64,?"], audio=AudioDelta(data="", transcript="hi")))
    assert record.media == [{"kind": "image", "contentType": "image/gif", "size": 0, "stored": True}]
    spoken = kept(Choice(audio=AudioDelta(data=b64encode(b"abc").decode(), transcript="")), speech=b"")
    assert spoken.media == [{"kind": "audio", "contentType": "audio/mpeg", "size": 3, "stored": True}]


@pytest.mark.parametrize(
    ("chat", "content_type"),
    [
        (Chat(model="m", messages=[], audio={"format": "wav"}), "audio/wav"),
        (
            Chat(model="m", messages=[], speech=Speech(voice="alloy", response_format="flac"), audio={"format": "wav"}),
            None,
        ),
        (Chat(model="m", messages=[]), "application/octet-stream"),
    ],
)
def test_sound_has_the_type_that_was_asked_for(chat: Chat, content_type: str | None) -> None:
    record = entry()
    keep_answer(record, chat, Reply(choices=[Choice()]), b"sound")
    assert record.media is not None
    assert record.media[0]["contentType"] == (content_type or "audio/flac")


def test_so_many_media_are_described_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_record, "MAX_MEDIA", 2)
    record = kept(Choice(images=[URL, URL, URL]))
    assert record.media is not None
    assert len(record.media) == 2


def test_thoughts_are_joined() -> None:
    record = kept(Choice(reasoning=[Reasoning(text="a"), Reasoning(text="b")]), Choice(reasoning=[Reasoning(text="c")]))
    assert (record.reasoning_content, record.content) == ("abc", None)


def test_a_name_of_a_called_tool_is_cut() -> None:
    counts: dict[str, int] = {}
    count_call(counts, "n" * 300)
    count_call(counts, "n" * 255)
    assert counts == {"n" * 255: 2}
