"""Canonical options of other tasks than chats: the part of a chat that only a request of one kind has.

Embeddings, rankings, judgements, images, speech and transcripts are asked for as chats, each with its struct here.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypedDict

import msgspec

# The purpose of the vectors: some models turn a question and its answering text into vectors in different ways.
InputType = Literal[
    "query",
    "document",
    "similarity",
    "classification",
    "clustering",
    "question_answering",
    "fact_verification",
    "code_query",
]


class Embedding(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The form that vectors are to have; None is "not said" or "as the model likes".

    The texts to embed are the parts of the chat's one message, unless they came as tokens.
    """

    # Each input as the model's own tokens, in place of texts.
    tokens: list[list[int]] | None = None
    # Numbers in each vector.
    dimensions: int | None = None
    # Whether the client takes base64 of float32, little-endian, in place of numbers.
    base64: bool = False
    input_type: InputType | None = None
    title: str | None = None


class Ranked(NamedTuple):
    """A document's place in the request, from 0, and how relevant it is to the query: the more, the higher."""

    place: int
    score: float


class Reranking(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The form that a ranking is to have; None is "not said".

    The first part of the chat's one message is the query, the others are the documents.
    """

    # How many documents are wanted, the most relevant ones; None for all.
    top_n: int | None = None
    # Tokens of a document that are looked at.
    max_tokens_per_doc: int | None = None
    # False: documents that are too long are refused, not cut.
    truncation: bool | None = None
    return_documents: bool = False
    # Whether the client reads `data`, as Voyage writes it.
    as_data: bool = False


class Judgement(TypedDict):
    """A model's verdict on one input, by its own names of categories."""

    flagged: bool
    categories: dict[str, bool]
    category_scores: dict[str, float]
    # Which kinds of input (`text`, `image`) a score comes from.
    category_applied_input_types: dict[str, list[str]]


class Moderation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A moderation request: each part of the chat's one message is judged by itself, or `together` as one input."""

    together: bool = False


class ImageRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The form that images are to have; None is "not said" or "as the model likes".

    The prompt and the images to work from (as data URLs) are the chat's one message, how many to make is its `n`.
    """

    # Whether the message's images are to be changed, or there are none and a new one is to be made.
    edits: bool = False
    # A data URL: where this image is transparent, the first one of the message may change.
    mask: str | None = None
    # `WIDTHxHEIGHT` in pixels; a ratio (`16:9`) goes before it.
    size: str | None = None
    aspect_ratio: str | None = None
    # How large in a model's own word (`2K`), whatever the shape.
    resolution: str | None = None
    quality: str | None = None
    style: str | None = None
    background: str | None = None
    input_fidelity: str | None = None
    output_format: str | None = None
    # Percent; of JPEG and WebP.
    output_compression: int | None = None
    moderation: str | None = None
    # The number of partial images that a stream sends ahead of each image.
    partial_images: int | None = None
    # Whether the answer has URLs at which the gateway serves the images, instead of the images.
    as_links: bool = False


AudioFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
TranscriptFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]


class Speech(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How a text is to be read aloud; None is "not said" or "as the model likes".

    The text is the chat's first message, instructions on how to read it are the second.
    """

    voice: str
    # Whether the voice is one of the client's own at the provider, named by its id.
    is_custom_voice: bool = False
    response_format: AudioFormat = "mp3"
    # 1 is the voice's own.
    speed: float | None = None
    # Whether the client takes events with base64 instead of the audio's bytes.
    events: bool = False


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A file of audio; `extension` tells its format, without a dot, `digest` is the SHA-256 of its bytes, in hex.

    `milliseconds` is about how long it is, and `max_milliseconds` how long it is at most: the same where its own head
    says it.
    """

    extension: str
    media_type: str
    data: bytes
    digest: str
    milliseconds: int
    max_milliseconds: int


class Transcription(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A request to transcribe audio; None is "not stated" or "as the model likes".

    Words that guide the model are the chat's one message, which has none where there are none.
    """

    recording: Recording
    # Whether the transcript is to be in English, whatever is spoken.
    translates: bool = False
    # ISO 639-1.
    language: str | None = None
    response_format: TranscriptFormat = "json"
    words: bool = False
    segments: bool = False
    logprobs: bool = False
    # `auto`, or settings of voice detection as OpenAI writes them.
    chunking_strategy: str | dict[str, Any] | None = None

    @property
    def needs_segments(self) -> bool:
        """Whether the answer tells when something was said."""
        return self.segments or self.response_format in {"srt", "vtt", "verbose_json"}

    @property
    def needs_speakers(self) -> bool:
        """Whether the answer tells who said what."""
        return self.response_format == "diarized_json"
