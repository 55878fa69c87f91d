"""Tasks: a request's kind (chat, images, …) as a value that says what differs from kind to kind. One module a kind.

A task fills every field of `Task`, or the process does not start. Its functions are pure: they open no socket and make
no query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, NamedTuple, get_args

import msgspec

from apps.catalog.offers import CatalogModel, Offer
from apps.gateway.canonical.chat import Chat, Target, TaskName
from apps.gateway.canonical.events import Finished
from apps.gateway.dialects import ProviderDialect
from apps.kernel.errors import ApiError
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


class Task(msgspec.Struct, frozen=True, kw_only=True, eq=False):
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
