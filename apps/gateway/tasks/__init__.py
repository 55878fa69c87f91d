"""Tasks: a request's kind (chat, images, …) as a value that says what differs from kind to kind. One module a kind.

A task fills every field of `Task`, or the process does not start. Its functions are pure: they open no socket and make
no query. Here is also what they decide by: the modes of models, and the facts of an offer for its dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, NamedTuple, get_args

from apps.catalog.offers import CatalogModel, Offer
from apps.gateway.canonical.chat import Chat, Target, TaskName
from apps.gateway.canonical.events import Finished
from apps.gateway.dialects import ProviderDialect
from apps.kernel.concurrency.identity_cache import IdentityCache
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage


class Requirement(NamedTuple):
    """A capability that an offer must have: its name for people, the test, and the client's field that asks for it."""

    name: str
    is_met_by: Callable[[Offer], bool]
    param: str = "model"
    # Whether the request is served without it where no offer has it.
    optional: bool = False


class AttachedFile(NamedTuple):
    """A file of a request outside its messages: its path in the request, and its data URL."""

    path: str
    data_url: str


class CallPart(NamedTuple):
    """A part of a request for one call of a provider, and how many values or images it must answer with.

    `find_fault` says what is wrong with that many values, None where nothing is; without it nothing can be.
    """

    chat: Chat
    results: int
    find_fault: Callable[[list[Any]], str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """The answers of one kind of request. None has a default: a new kind decides each of them."""

    name: TaskName

    # --- routing

    # The capabilities that a request requires of an offer.
    requirements_of: Callable[[Chat], list[Requirement]]
    # Raises InvalidRequest, which says where else to ask, unless a model that the client named is of this kind.
    check_model: Callable[[CatalogModel, Chat], None]
    # Whether `auto` may choose a model.
    is_served_by: Callable[[CatalogModel, Chat], bool]
    # The provider's half of the dialect in which an offer is asked, None where it is not spoken here.
    find_dialect: Callable[[Chat, Offer], ProviderDialect | None]
    # The price by which `auto` compares offers: USD for any one unit.
    list_price: Callable[[Chat, Offer], Decimal]
    # How many images are to be made: offers that charge by the image are ranked by what these cost.
    count_images: Callable[[Chat], int]
    # Whether prompt and answer have to fit into a model's context window.
    fits_context: bool

    # --- admission

    # The maximal usage beside the text of the answer, with a prompt of so many tokens.
    usage_before_answer: Callable[[Chat, int, Offer], Usage]
    # Whether the answer is text that is paid by the token. Then a stream's reservation grows in parts, and the balance
    # limits the answer; else all that `usage_before_answer` costs is reserved at once.
    writes_tokens: bool

    # --- guardrails

    # The files that rules scan, beside those of the messages.
    files_to_screen: Callable[[Chat], Sequence[AttachedFile]]
    # A text's path in the client's request, from its path in the chat; None where they are the same.
    path_for_client: Callable[[str], str] | None

    # --- calling a provider, and its answer

    # The request in the form in which this target can be asked.
    adapt_request: Callable[[Chat, Target], Chat]
    # The calls that it takes where one call gives no more than so many values (`ResultsGiven`) or images, none where
    # one call answers it as it is; None for a kind that is always one call here.
    split: Callable[[Chat, Offer], list[CallPart]] | None
    # Whether an answer may hold images, audio or vectors, and so be large.
    may_bring_media: Callable[[Chat, Offer], bool]
    # Whether images that a provider leaves at an address are fetched for the client.
    fetches_images: bool
    # The error of an answer that ended with so many images and lacks the requested result, else None.
    find_missing_result: Callable[[int, Finished | None], ApiError | None]
    # The usage where the provider counted nothing: by tokens of the prompt, tokens written, and images.
    usage_without_counts: Callable[[Chat, int, int, int, PriceCard], Usage]


def facts_of(offer: Offer) -> dict[str, Any]:
    """Return an offer's facts for its dialect, not to be changed.

    A fact that a data file states goes before one that follows from the features.

    `structured_outputs`: how an answer gets the form of a schema (`native`, by a forced `tool`, by `json_object` and
    words), left out where there is no way.
    """
    return _facts(offer)


def _compute_facts(offer: Offer) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "prompt_cache": offer.prompt_cache,
        "temperature": offer.temperature,
        "web_search": offer.web_search,
    }
    if offer.structured_outputs:
        facts["structured_outputs"] = "native"
    elif offer.tools:
        facts["structured_outputs"] = "tool"
    elif offer.json_output:
        facts["structured_outputs"] = "json_object"
    return facts | dict(offer.facts)


def supports_structured_output(offer: Offer) -> bool:
    """Return whether an answer can be given the form of a schema, natively or in a way that the client cannot tell."""
    return "structured_outputs" in facts_of(offer)


_facts = IdentityCache(_compute_facts)


_PATHS: Final = {
    "audio_speech": "/v1/audio/speech",
    "audio_transcription": "/v1/audio/transcriptions",
    "chat": "/v1/chat/completions",
    "embedding": "/v1/embeddings",
    "image_generation": "/v1/images/generations",
    "moderation": "/v1/moderations",
    "rerank": "/v1/rerank",
}


@dataclass(frozen=True, slots=True)
class ModelMode:
    """A mode of the catalog, whose models answer one kind of request alone; `adjective` goes before "model"."""

    name: str
    adjective: str

    def serves(self, model: CatalogModel, chat: Chat) -> bool:
        """Return whether a model is of this mode."""
        return model.mode == self.name

    def check(self, model: CatalogModel, chat: Chat) -> None:
        """Raise InvalidRequest, which says where else to ask, unless a model is of this mode."""
        if not self.serves(model, chat):
            message = f"{model.id} is no {self.adjective} model{hint_of(model.mode)}"
            raise InvalidRequest(message, code="unsupported_feature", param="model")


def specialist_task(
    mode: ModelMode,
    *,
    name: TaskName,
    requirements_of: Callable[[Chat], list[Requirement]],
    find_dialect: Callable[[Chat, Offer], ProviderDialect | None],
    list_price: Callable[[Chat, Offer], Decimal],
    usage_before_answer: Callable[[Chat, int, Offer], Usage],
    usage_without_counts: Callable[[Chat, int, int, int, PriceCard], Usage],
    files_to_screen: Callable[[Chat], Sequence[AttachedFile]],
    path_for_client: Callable[[str], str],
    split: Callable[[Chat, Offer], list[CallPart]] | None,
    may_bring_media: bool,
) -> Task:
    """Return the task of models of one mode, which answer with values, speech or a transcript.

    Their answers are no text that is paid by the token and have no images. Requests are sent as they are read. An
    incomplete answer fails where it is read; an empty one can be right (a transcript without speech).
    """
    return Task(
        name=name,
        requirements_of=requirements_of,
        check_model=mode.check,
        is_served_by=mode.serves,
        find_dialect=find_dialect,
        list_price=list_price,
        count_images=lambda chat: 0,
        fits_context=False,
        usage_before_answer=usage_before_answer,
        writes_tokens=False,
        files_to_screen=files_to_screen,
        path_for_client=path_for_client,
        adapt_request=lambda chat, target: chat,
        split=split,
        may_bring_media=lambda chat, offer: may_bring_media,
        fetches_images=False,
        find_missing_result=lambda images, finish: None,
        usage_without_counts=usage_without_counts,
    )


def hint_of(mode: str) -> str:
    """Return the end of an error's sentence that names the endpoint for models of the mode; empty where unknown."""
    path = _PATHS.get(mode)
    if path is None:
        return ""
    return f"; {'chat with it' if mode == 'chat' else 'ask for it'} at {path}"


def load_tasks(names: Iterable[str], package: str, folders: Iterable[str]) -> dict[str, Task]:
    """Return the kinds by name, each the `TASK` of the module of its name.

    Raises LookupError where a name has no such module, or a module no name.
    """
    tasks: dict[str, Task] = {}
    modules = {module.name for module in iter_modules(folders)}
    for name in sorted({*names} | modules):
        if name not in modules:
            raise LookupError(f"There is no kind of request {name!r}: {package}/{name}.py is missing")
        task = getattr(import_module(f"{package}.{name}"), "TASK", None)
        if not isinstance(task, Task) or task.name != name or name not in names:
            raise LookupError(
                f"{package}.{name} must define TASK, a Task of the name {name!r}, which `TaskName` in canonical/chat.py"
                " has to list"
            )
        tasks[name] = task
    return tasks


# The kinds of requests, by the name that a chat has of its own (`Chat.task`).
TASKS: Final = load_tasks(get_args(TaskName), __name__, __path__)
