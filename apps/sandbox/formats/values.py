"""Embeddings, rankings and moderation, each in the words of several providers. Answers are whole.

Embeddings: OpenAI's, Jina's, Cohere's, Google's at AI Studio and at its cloud, Titan's. Rankings: `truncation` or
`top_k` make a request Voyage's, `return_documents` Jina's; any other is Cohere's. Moderation: `moderator` as OpenAI has
it, `moderator-mistral` as Mistral does.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import WholeReplyFormat, bedrock_converse, cohere_chat, google_generate, openai_chat
from apps.sandbox.generated_media import USUAL_LENGTH, in_base64
from apps.sandbox.scenario import SandboxRefusal, Scenario

MAX_OPENAI_INPUTS = 2048


def read_openai(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as OpenAI does."""
    try:
        asked = msgspec.json.decode(body, type=_OpenaiRequest)
    except msgspec.ValidationError as error:
        raise SandboxRefusal(400, f"Invalid request: {error}") from error
    except msgspec.DecodeError as error:
        raise SandboxRefusal(400, "We could not parse the JSON body of your request.") from error
    inputs: list[Any] = asked.input if isinstance(asked.input, list) else [asked.input]
    if inputs and isinstance(inputs[0], int):
        inputs = [inputs]
    if not 1 <= len(inputs) <= MAX_OPENAI_INPUTS or not all(inputs):
        raise SandboxRefusal(400, f"'$.input' is invalid: 1 to {MAX_OPENAI_INPUTS} inputs, none empty", param="input")
    # A token of an array counts as one: it is four bytes here.
    texts = [one if isinstance(one, str) else "".join(f"{token:4}" for token in one) for one in inputs]
    return Conversation(
        model=asked.model,
        turns=tuple(Turn("user", text) for text in texts),
        vector_length=asked.dimensions or (1536 if asked.model == "embedder-fast" else USUAL_LENGTH),
        vectors_in_base64=asked.encoding_format == "base64",
    )


def write_openai(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a vector for each input."""
    data = [
        {"object": "embedding", "index": index, "embedding": in_base64(vector) if answer.vectors_in_base64 else vector}
        for index, vector in enumerate(answer.vectors)
    ]
    reply: dict[str, Any] = {"object": "list", "data": data, "model": answer.model}
    if answer.usage:
        reply["usage"] = {"prompt_tokens": answer.usage.prompt, "total_tokens": answer.usage.prompt}
    return msgspec.json.encode(reply)


class _OpenaiRequest(Struct, forbid_unknown_fields=True):
    model: str
    input: str | list[str | int | list[int]]
    dimensions: Annotated[int, Meta(ge=1, le=4096)] | None = None
    encoding_format: Literal["float", "base64"] = "float"
    user: str = ""
    input_type: str = ""


_OPENAI = WholeReplyFormat(openai_chat, "/v1/embeddings", read_openai, write_openai)


_JinaTask = Literal[
    "retrieval.query",
    "retrieval.passage",
    "text-matching",
    "classification",
    "clustering",
    "separation",
    "code.query",
    "code.passage",
]


class _JinaRequest(Struct, forbid_unknown_fields=True):
    model: str
    input: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=2048)]
    task: _JinaTask | None = None
    dimensions: Annotated[int, Meta(ge=1, le=4096)] | None = None
    embedding_type: Literal["float", "base64"] = "float"
    normalized: bool = True
    truncate: bool = False


def read_jina(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (422) in Jina's manner."""
    try:
        asked = msgspec.json.decode(body, type=_JinaRequest)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(422, f"[VALIDATION_ERROR] {error}") from error
    return Conversation(
        model=asked.model,
        turns=tuple(Turn("user", text) for text in asked.input),
        vector_length=asked.dimensions or USUAL_LENGTH,
        vectors_in_base64=asked.embedding_type == "base64",
    )


_JINA = WholeReplyFormat(openai_chat, "/jina/v1/embeddings", read_jina, write_openai)


MAX_COHERE_INPUTS = 96


def read_cohere(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Cohere's manner."""
    try:
        asked = msgspec.json.decode(body, type=_CohereRequest)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"invalid request: {error}") from error
    if not 1 <= len(asked.texts) <= MAX_COHERE_INPUTS:
        raise SandboxRefusal(400, f"invalid request: 1 to {MAX_COHERE_INPUTS} texts are allowed")
    return Conversation(
        model=asked.model,
        turns=tuple(Turn("user", text) for text in asked.texts),
        vector_length=asked.output_dimension or USUAL_LENGTH,
    )


def write_cohere(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a vector for each text."""
    meta: dict[str, Any] = {"api_version": {"version": "2"}}
    if answer.usage:
        meta["billed_units"] = {"input_tokens": answer.usage.prompt}
    return msgspec.json.encode({"id": answer.id, "embeddings": {"float": answer.vectors}, "texts": [], "meta": meta})


class _CohereRequest(Struct, forbid_unknown_fields=True):
    model: str
    texts: list[str]
    input_type: Literal["search_query", "search_document", "classification", "clustering"]
    embedding_types: list[Literal["float"]]
    truncate: Literal["NONE", "START", "END"] = "END"
    output_dimension: int | None = None


_COHERE = WholeReplyFormat(cohere_chat, "/v2/embed", read_cohere, write_cohere)


MAX_GOOGLE_INPUTS = 100


def read_google(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Google's manner."""
    try:
        asked = msgspec.json.decode(body, type=_GoogleRequests).requests
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid JSON payload received. {error}") from error
    name = path.removeprefix("/v1beta/").rpartition(":")[0]
    if not 1 <= len(asked) <= MAX_GOOGLE_INPUTS:
        raise SandboxRefusal(
            400, f"* BatchEmbedContentsRequest.requests: 1 to {MAX_GOOGLE_INPUTS} requests can be in one batch"
        )
    if any(one.model != name for one in asked):
        raise SandboxRefusal(400, "model: must be the one in the path")
    return Conversation(
        model=name.removeprefix("models/"),
        turns=tuple(Turn("user", "".join(part.text for part in one.content.parts)) for one in asked),
        vector_length=asked[0].length or USUAL_LENGTH,
    )


def write_google(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a vector for each request."""
    return msgspec.json.encode({"embeddings": [{"values": vector} for vector in answer.vectors]})


class _GooglePart(Struct, forbid_unknown_fields=True):
    text: str


class _GoogleContent(Struct, forbid_unknown_fields=True):
    parts: list[_GooglePart]


class _GoogleRequest(Struct, forbid_unknown_fields=True):
    model: str
    content: _GoogleContent
    task: str = msgspec.field(default="", name="taskType")
    title: str = ""
    length: int | None = msgspec.field(default=None, name="outputDimensionality")


class _GoogleRequests(Struct, forbid_unknown_fields=True):
    requests: list[_GoogleRequest]


_GOOGLE = WholeReplyFormat(google_generate, "/v1beta/models/[^/]+:batchEmbedContents", read_google, write_google)


MAX_VERTEX_INPUTS = 250


def read_vertex(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Google's manner."""
    try:
        asked = msgspec.json.decode(body, type=_VertexRequest)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid JSON payload received. {error}") from error
    if not 1 <= len(asked.instances) <= MAX_VERTEX_INPUTS:
        raise SandboxRefusal(400, f"The batch size should be 1 to {MAX_VERTEX_INPUTS}")
    return Conversation(
        model=path.rpartition("/")[2].rpartition(":")[0],
        turns=tuple(Turn("user", one.content) for one in asked.instances),
        vector_length=asked.parameters.length or USUAL_LENGTH,
    )


def write_vertex(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a vector for each instance, and its count."""
    predictions = [
        {"embeddings": {"values": vector, "statistics": {"truncated": False, "token_count": count}}}
        for vector, count in zip(answer.vectors, answer.tokens_of_inputs, strict=True)
    ]
    return msgspec.json.encode({"predictions": predictions})


class _VertexInstance(Struct, forbid_unknown_fields=True):
    content: str
    task_type: str = ""
    title: str = ""


class _VertexParameters(Struct, frozen=True, forbid_unknown_fields=True):
    cut: bool = msgspec.field(default=True, name="autoTruncate")
    length: int | None = msgspec.field(default=None, name="outputDimensionality")


class _VertexRequest(Struct, forbid_unknown_fields=True):
    instances: list[_VertexInstance]
    parameters: _VertexParameters = _VertexParameters()


_VERTEX_PATH = "/v1/projects/[^/]+/locations/[^/]+/publishers/google/models/[^/]+:predict"
_VERTEX = WholeReplyFormat(google_generate, _VERTEX_PATH, read_vertex, write_vertex)


def read_titan(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Bedrock's manner."""
    try:
        asked = msgspec.json.decode(body, type=_TitanRequest)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(
            400, f"Malformed input request: {error}, please reformat your input and try again."
        ) from error
    model = unquote(path.removeprefix("/model/").removesuffix("/invoke"))
    return Conversation(model=model, turns=(Turn("user", asked.text),), vector_length=asked.dimensions or USUAL_LENGTH)


def write_titan(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: the vector of the text."""
    count = {"inputTextTokenCount": answer.usage.prompt} if answer.usage else {}
    return msgspec.json.encode({"embedding": answer.vectors[0] if answer.vectors else [], **count})


class _TitanRequest(Struct, forbid_unknown_fields=True):
    text: str = msgspec.field(name="inputText")
    dimensions: int | None = None
    normalize: bool = True


_TITAN = WholeReplyFormat(bedrock_converse, "/model/(?!reranker).+/invoke", read_titan, write_titan)


_EMBEDDINGS = (_OPENAI, _JINA, _COHERE, _GOOGLE, _VERTEX, _TITAN)


MAX_DOCUMENTS = 1000


def read_rerank(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field."""
    try:
        form = _form_of(msgspec.json.decode(body, type=dict[str, Any]))
        asked = msgspec.json.decode(body, type=form)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"invalid request: {error}") from error
    if not 1 <= len(asked.documents) <= MAX_DOCUMENTS:
        raise SandboxRefusal(400, f"invalid request: 1 to {MAX_DOCUMENTS} documents are allowed", param="documents")
    return Conversation(
        model=asked.model,
        turns=tuple(Turn("user", text) for text in (asked.query, *asked.documents)),
        ranks=True,
        max_ranked=asked.most,
        written_as=form.__name__,
    )


def write_rerank(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: the ranking, in the words of who is asked."""
    ranking = [{"index": place, "relevance_score": score} for place, score in answer.ranking]
    counts = {"total_tokens": answer.usage.prompt} if answer.usage else None
    if answer.written_as == _CohereRerank.__name__:
        units = {"search_units": answer.search_units, "input_tokens": answer.usage.prompt} if answer.usage else None
        meta = {"api_version": {"version": "2"}, **({"billed_units": units} if units else {})}
        return msgspec.json.encode({"id": answer.id, "results": ranking, "meta": meta})
    usage = {"usage": counts} if counts else {}
    if answer.written_as == _JinaRerank.__name__:
        return msgspec.json.encode({"model": answer.model, "object": "list", "results": ranking, **usage})
    return msgspec.json.encode({"object": "list", "data": ranking, "model": answer.model, **usage})


class _RerankRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    model: str
    query: str
    documents: list[str]


class _CohereRerank(_RerankRequest, kw_only=True):
    most: int | None = msgspec.field(default=None, name="top_n")
    max_tokens_per_doc: int | None = None


class _JinaRerank(_RerankRequest, kw_only=True):
    return_documents: bool
    most: int | None = msgspec.field(default=None, name="top_n")


class _VoyageRerank(_RerankRequest, kw_only=True):
    truncation: bool = True
    most: int | None = msgspec.field(default=None, name="top_k")


def _form_of(wire: dict[str, Any]) -> type[_CohereRerank | _JinaRerank | _VoyageRerank]:
    if "truncation" in wire or "top_k" in wire:
        return _VoyageRerank
    return _JinaRerank if "return_documents" in wire else _CohereRerank


_RERANK = WholeReplyFormat(openai_chat, "/v[12]/rerank", read_rerank, write_rerank)


def read_bedrock_rerank(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Bedrock's manner."""
    try:
        asked = msgspec.json.decode(body, type=_BedrockRerankRequest)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(
            400, f"Malformed input request: {error}, please reformat your input and try again."
        ) from error
    return Conversation(
        model=unquote(path.removeprefix("/model/").removesuffix("/invoke")),
        turns=tuple(Turn("user", text) for text in (asked.query, *asked.documents)),
        ranks=True,
        max_ranked=asked.most,
    )


def write_bedrock_rerank(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: the ranking, without a count."""
    return msgspec.json.encode(
        {"results": [{"index": place, "relevance_score": score} for place, score in answer.ranking]}
    )


class _BedrockRerankRequest(Struct, forbid_unknown_fields=True):
    query: str
    documents: list[str]
    api_version: Literal[2]
    most: int | None = msgspec.field(default=None, name="top_n")
    max_tokens_per_doc: int | None = None


_BEDROCK_RERANK = WholeReplyFormat(
    bedrock_converse, "/model/reranker[^/]*/invoke", read_bedrock_rerank, write_bedrock_rerank
)


MAX_MODERATED_INPUTS = 8
MISTRAL: Final = "moderator-mistral"
OPENAI_CATEGORIES: Final = (
    *("harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm"),
    *("self-harm/intent", "self-harm/instructions", "sexual", "sexual/minors", "violence", "violence/graphic"),
)
MISTRAL_CATEGORIES: Final = (
    *("sexual", "hate_and_discrimination", "violence_and_threats", "dangerous", "criminal", "selfharm", "health"),
    *("financial", "law", "pii", "jailbreaking"),
)
# OpenAI judges pictures by these.
_OF_PICTURES: Final = frozenset(
    {"self-harm", "self-harm/intent", "self-harm/instructions", "sexual", "violence", "violence/graphic"}
)
_THRESHOLD: Final = 0.5


def read_moderation(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field."""
    try:
        asked = msgspec.json.decode(body, type=_ModerationRequest)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid request: {error}") from error
    inputs: list[Any] = asked.input if isinstance(asked.input, list) else [asked.input]
    is_mistral = asked.model.partition(":")[0] == MISTRAL
    if not 1 <= len(inputs) <= MAX_MODERATED_INPUTS or not all(inputs):
        raise SandboxRefusal(
            400, f"'$.input' is invalid: 1 to {MAX_MODERATED_INPUTS} inputs, none empty", param="input"
        )
    texts = [isinstance(one, str) for one in inputs]
    if any(texts) and not all(texts):
        raise SandboxRefusal(400, "'$.input' is invalid: texts, or the parts of one input", param="input")
    if all(texts):
        turns = tuple(Turn("user", text) for text in inputs)
    elif is_mistral:
        raise SandboxRefusal(400, "Invalid request: input must be texts", param="input")
    else:
        pictures = sum(isinstance(part, _Picture) for part in inputs)
        text = " ".join(part.text for part in inputs if isinstance(part, _Text))
        turns = (Turn("user", text, attachments=(("image", pictures),) if pictures else ()),)
    categories = MISTRAL_CATEGORIES if is_mistral else OPENAI_CATEGORIES
    return Conversation(model=asked.model, turns=turns, categories=categories)


def write_moderation(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: a judgement of each input; Mistral alone counts tokens."""
    if answer.model.partition(":")[0] == MISTRAL:
        results = [_result(scores) for scores in answer.judgements]
        usage = {"usage": {"prompt_tokens": answer.usage.prompt}} if answer.usage else {}
        return msgspec.json.encode({"id": answer.id, "model": answer.model, "results": results, **usage})
    judged = [
        {
            "flagged": any(score > _THRESHOLD for score in scores.values()),
            **_result(scores),
            "category_applied_input_types": {
                name: ["text", "image"] if answer.judges_pictures and name in _OF_PICTURES else ["text"]
                for name in scores
            },
        }
        for scores in answer.judgements
    ]
    return msgspec.json.encode({"id": f"modr-{answer.id}", "model": answer.model, "results": judged})


def _result(scores: dict[str, float]) -> dict[str, Any]:
    return {"categories": {name: score > _THRESHOLD for name, score in scores.items()}, "category_scores": scores}


class _Address(Struct, forbid_unknown_fields=True):
    url: str


class _Text(Struct, forbid_unknown_fields=True, tag="text"):
    text: str


class _Picture(Struct, forbid_unknown_fields=True, tag="image_url"):
    image_url: _Address


class _ModerationRequest(Struct, forbid_unknown_fields=True):
    model: str
    input: str | list[str | _Text | _Picture]


_MODERATIONS = (WholeReplyFormat(openai_chat, "/v1/moderations", read_moderation, write_moderation),)


FORMATS = (*_EMBEDDINGS, _RERANK, _BEDROCK_RERANK, *_MODERATIONS)
