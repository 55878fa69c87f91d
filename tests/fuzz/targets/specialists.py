"""Requests of specialist models in every client format, and the answers of their providers.

A request is taken or refused by an error of the client's; one that was taken can be written to every provider that may
be asked, or is refused in words. Readers of answers never raise, and what comes out can be written to every client.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.chat import Target as Place
from apps.gateway.canonical.events import Event, Failed, Reply, Summary, fold
from apps.gateway.client.multipart import read_form
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.media.speech import client as speech
from apps.gateway.dialects.media.speech import provider as speech_providers
from apps.gateway.dialects.media.transcription import client as transcription
from apps.gateway.dialects.media.transcription import provider as transcription_providers
from apps.gateway.dialects.values import moderations, rerank
from apps.gateway.dialects.values.embeddings import client as embeddings
from apps.gateway.dialects.values.embeddings import provider as embedding_providers
from apps.gateway.framing import FRAMINGS, BrokenFrames, sse_frames
from apps.gateway.guard.chat_texts import ChatTexts
from apps.gateway.tasks import Task
from apps.gateway.tasks.embeddings import TASK as EMBEDDINGS
from apps.gateway.tasks.moderations import TASK as MODERATIONS
from apps.gateway.tasks.rerank import TASK as RERANK
from apps.gateway.tasks.speech import TASK as SPEECH
from apps.gateway.tasks.transcription import TASK as TRANSCRIPTION
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.kernel.errors import ApiError, BodyTooLarge, InvalidRequest
from tests.fuzz.target import Shape, Target, pieces_of
from tests.fuzz.targets.answers import hold, run_failure
from tests.gateway.dialects.test_laws import SUMMARY

_FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%s\r\n'
_FIELD = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
_WAV = speech_providers.WAV_HEAD + bytes(480)


class Format(NamedTuple):
    """A format of clients: how its requests are read and its answers written, and good requests."""

    read: Callable[[bytes], Chat]
    write: Callable[[Reply, Summary, Chat], bytes] | None
    seeds: list[bytes]
    shape: Shape = "json"


class Kind(NamedTuple):
    """A kind of request: its formats of clients and of providers, what these are said to take, and their answers."""

    task: Task
    formats: Mapping[str, Format]
    providers: Mapping[str, ProviderDialect]
    facts: Mapping[str, Any]
    answers: list[bytes]


def _form_reader(read: Callable[[Any], Chat]) -> Callable[[bytes], Chat]:
    def read_fields(body: bytes) -> Chat:
        return read(read_form(body, "multipart/form-data; boundary=b"))

    return read_fields


def _form(*fields: tuple[bytes, bytes]) -> bytes:
    return b"".join(_FIELD % field for field in ((b"model", b"m"), *fields)) + _FILE % _WAV + b"--b--\r\n"


KINDS = {
    "embeddings": Kind(
        EMBEDDINGS,
        {
            "openai": Format(
                embeddings.read_openai_request,
                embeddings.write_openai_reply,
                [
                    b'{"model":"m","input":["a","b"],"dimensions":8,"encoding_format":"base64","input_type":"query"}',
                    b'{"model":"m","input":[[1,2],[3]],"user":"u","title":"t","truncate":true}',
                ],
            ),
            "cohere": Format(
                embeddings.read_cohere_request,
                embeddings.write_cohere_reply,
                [b'{"model":"m","texts":["a"],"input_type":"search_query","embedding_types":["float"]}'],
            ),
            "google": Format(
                partial(embeddings.read_google_single, model="m"),
                embeddings.write_google_single,
                [b'{"content":{"parts":[{"text":"a"}]},"task_type":"RETRIEVAL_QUERY","outputDimensionality":8}'],
            ),
            "google_batch": Format(
                partial(embeddings.read_google_batch, model="m"),
                embeddings.write_google_batch,
                [b'{"requests":[{"model":"m","content":{"parts":[{"text":"a"}]},"title":"t"}]}'],
            ),
            "ollama": Format(
                embeddings.read_ollama_request,
                embeddings.write_ollama_reply,
                [b'{"model":"m:latest","input":["a","b"],"dimensions":8,"truncate":true,"options":{"num_ctx":9}}'],
            ),
            "ollama_single": Format(
                embeddings.read_ollama_single,
                embeddings.write_ollama_single,
                [b'{"model":"m","prompt":"a","options":{"seed":1},"keep_alive":"5m"}'],
            ),
        },
        embedding_providers.PROVIDERS,
        {"embeddings": {"takes": ["input_type", "title", "tokens", "user"], "dimensions": [1]}},
        [
            b'{"data":[{"index":0,"embedding":[0.5,-1e-9]}],"usage":{"prompt_tokens":2,"total_tokens":2}}',
            b'{"data":[{"index":0,"embedding":"AACAPwAAAEA="}],"usage":{"prompt_tokens":2}}',
            b'{"embeddings":{"float":[[0.5,1]]},"meta":{"billed_units":{"input_tokens":2}}}',
            b'{"embeddings":[{"values":[0.5,1]}],"usageMetadata":{"promptTokenCount":2}}',
            b'{"predictions":[{"embeddings":{"values":[0.5],"statistics":{"token_count":2,"truncated":false}}}]}',
            b'{"embedding":[0.5,1],"inputTextTokenCount":2}',
        ],
    ),
    "rerank": Kind(
        RERANK,
        {
            "cohere": Format(
                rerank.read_request,
                rerank.write_reply,
                [
                    b'{"model":"m","query":"q","documents":["a","b"],"top_n":1,"max_tokens_per_doc":99}',
                    b'{"model":"m","query":"q","documents":[{"text":"a","title":"t"}],"top_k":1,"truncation":false,'
                    b'"rank_fields":["text"]}',
                ],
            )
        },
        rerank.PROVIDERS,
        {"rerank": {"takes": ["max_tokens_per_doc", "truncation"]}},
        [
            b'{"results":[{"index":1,"relevance_score":0.5},{"index":0,"relevance_score":0.1}],'
            b'"meta":{"billed_units":{"search_units":1,"input_tokens":3}},"usage":{"total_tokens":3}}',
            b'{"object":"list","data":[{"index":0,"relevance_score":0.5}],"usage":{"total_tokens":3}}',
        ],
    ),
    "moderations": Kind(
        MODERATIONS,
        {
            "openai": Format(
                moderations.read_request,
                moderations.write_reply,
                [
                    b'{"input":["a","b"]}',
                    b'{"model":"m","input":[{"type":"text","text":"a"},{"type":"image_url","image_url":'
                    b'{"url":"data:image/png;base64,iVBORw0KGgo="}}]}',
                ],
            )
        },
        moderations.PROVIDERS,
        {},
        [
            b'{"results":[{"flagged":true,"categories":{"violence":true,"illicit":null},"category_scores":'
            b'{"violence":0.9},"category_applied_input_types":{"violence":["text"]}}],"usage":{"total_tokens":1}}',
            b'{"results":[{"categories":{"selfharm":false},"category_scores":{"selfharm":0.1}}],"usage":{}}',
        ],
    ),
    "speech": Kind(
        SPEECH,
        {
            "openai": Format(
                speech.read_request,
                None,
                [
                    b'{"model":"m","input":"Hi.","voice":"alloy","response_format":"wav","speed":1.5}',
                    b'{"model":"m","input":"Hi.","voice":{"id":"v"},"instructions":"softly","stream_format":"sse"}',
                ],
            )
        },
        speech_providers.PROVIDERS,
        {
            "speech": {
                "dialect": "openai",
                "formats": ["mp3", "opus", "aac", "flac", "wav", "pcm"],
                "takes": ["instructions", "speed", "custom_voice"],
            }
        },
        [
            _WAV,
            b'data: {"type":"speech.audio.delta","audio":"AAAA"}\n\n'
            b'data: {"type":"speech.audio.done","usage":{"input_tokens":3,"output_tokens":9}}\n\n',
            b'data: {"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"audio/L16;codec=pcm;rate=24000",'
            b'"data":"AAAA"}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,'
            b'"candidatesTokenCount":9}}\n\n',
            b'{"error":{"message":"no","type":"a"}}',
        ],
    ),
    "transcription": Kind(
        TRANSCRIPTION,
        {
            "openai": Format(
                _form_reader(transcription.read_transcription),
                transcription.write_reply,
                [
                    _form((b"response_format", b"verbose_json"), (b"timestamp_granularities[]", b"word")),
                    _form((b"chunking_strategy", b'{"type":"server_vad","threshold":0.5}')),
                    _form((b"include[]", b"logprobs"), (b"stream", b"true"), (b"language", b"en")),
                ],
                "bytes",
            ),
            "openai_translation": Format(
                _form_reader(transcription.read_translation),
                transcription.write_reply,
                [_form((b"prompt", b"names"), (b"temperature", b"0.5"), (b"response_format", b"srt"))],
                "bytes",
            ),
        },
        transcription_providers.PROVIDERS,
        {
            "transcription": {
                "dialect": "openai",
                "takes": [
                    *("chunking_strategy", "logprobs", "prompt", "response_format", "segments", "speakers"),
                    *("stream", "temperature", "translation", "words"),
                ],
            }
        },
        [
            b'{"text":"Hi.","language":"en","duration":1.5,"segments":[{"id":0,"start":0,"end":1.5,"text":"Hi."}],'
            b'"words":[{"word":"Hi","start":0,"end":1}],"usage":{"type":"duration","seconds":2}}',
            b'data: {"type":"transcript.text.delta","delta":"Hi"}\n\ndata: {"type":"transcript.text.done",'
            b'"text":"Hi","usage":{"type":"tokens","input_tokens":3,"output_tokens":1}}\n\n',
            b'{"metadata":{"duration":1.5},"results":{"channels":[{"detected_language":"en","alternatives":[{"transcript"'
            b':"Hi","words":[{"word":"hi","punctuated_word":"Hi","start":0,"end":1,"speaker":0}]}]}],"utterances":'
            b'[{"start":0,"end":1,"transcript":"Hi","speaker":0}]}}',
            b'{"language_code":"eng","text":"Hi","words":[{"text":"Hi","start":0,"end":1,"type":"word","speaker_id":"a"}]}',
        ],
    ),
}


def run_request(kind: Kind, read: Callable[[bytes], Chat], data: bytes) -> None:
    """Read a request, and ask every provider that may be asked."""
    try:
        chat = read(data)
    except (InvalidRequest, BodyTooLarge) as error:
        json.loads(OPENAI.write_error(error))
        return
    assert isinstance(chat, Chat)
    assert estimate_prompt_tokens(chat) >= 0
    needs = kind.task.requirements_of(chat)
    for name, provider in kind.providers.items():
        offer: Any = SimpleNamespace(facts=kind.facts, context_length=None)
        if name != "openai" and chat.embedding is not None and chat.embedding.tokens is not None:
            # No other takes them, and the catalog says so.
            continue
        assert all(need.is_met_by(offer) for need in needs if need.param not in {"dimensions", "input"})
        parts = [chat] if kind.task.split is None else [part.chat for part in kind.task.split(chat, offer)]
        for part in parts:
            place = Place(model_name="m", facts=dict(kind.facts))
            with contextlib.suppress(ApiError):
                assert isinstance(provider.write_request(part, place), bytes)
                assert isinstance(provider.path(part, place), str)
                provider.headers(part, place)
    for passage in ChatTexts(chat).texts:
        assert isinstance(passage.text, str)


def run_reply(kind: Kind, dialect: ProviderDialect, data: bytes) -> None:
    """Read a whole answer, and write it to every client."""
    events = hold(dialect.read_reply(data))
    if events and isinstance(events[-1], Failed):
        return
    reply = fold(events)
    for one in kind.formats.values():
        if one.write is not None:
            for seed in one.seeds:
                chat = one.read(seed)
                with contextlib.suppress(InvalidRequest):
                    assert isinstance(one.write(reply, SUMMARY, chat), bytes)


def run_events(kind: Kind, dialect: ProviderDialect, data: bytes) -> None:
    """Read a streamed answer, whole and in pieces, and write it to a client that takes events."""
    frames = FRAMINGS[dialect.framing]
    try:
        events = hold(dialect.read_events(frames([data] if data else [])))
        hold(dialect.read_events(frames(pieces_of(data, 1))))
    except BrokenFrames:
        return
    failed = bool(events) and isinstance(events[-1], Failed)
    write: Callable[[Iterable[Event], Chat], Iterator[bytes]] = (
        speech.write_events if kind.task is SPEECH else transcription.write_events
    )
    one = kind.formats["openai"]
    for seed in one.seeds:
        for frame in sse_frames([b"".join(write([*events, *([] if failed else [SUMMARY])], one.read(seed)))]):
            assert isinstance(json.loads(frame), dict)


def _targets() -> Iterator[Target]:
    for kind_name, kind in KINDS.items():
        for name, one in kind.formats.items():
            run = partial(run_request, kind, one.read)
            yield Target(f"{kind_name}_{name}_request", run, lambda one=one: one.seeds, one.shape, runs=60)
        answers: Callable[[], list[bytes]] = lambda kind=kind: kind.answers  # noqa: E731 - for several calls
        for name, dialect in kind.providers.items():
            if kind.task is not SPEECH:
                whole = partial(run_reply, kind, dialect)
                yield Target(f"{kind_name}_{name}_reply", whole, answers, "json", runs=40)
            if kind.task in (SPEECH, TRANSCRIPTION):
                shape: Shape = "sse" if dialect.framing == "sse" else "bytes"
                streamed = partial(run_events, kind, dialect)
                yield Target(f"{kind_name}_{name}_events", streamed, answers, shape, runs=40)
            yield Target(f"{kind_name}_{name}_failure", partial(run_failure, dialect), answers, "json", runs=20)


TARGETS = list(_targets())
