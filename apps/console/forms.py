"""Forms: read by the same serializers as the API's bodies, and executed once even if submitted twice."""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeVar

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.translation import gettext, override
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from apps.console.labels import ERRORS
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.pages.languages import gettext_lazy, translated, translated_sentence
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.rest.errors import find_error
from apps.kernel.rest.serializers import BooleanField, IntegerField
from apps.organizations.accounts.account_serializers import MAX_CODE
from apps.organizations.accounts.step_up import Proof
from apps.organizations.journal import idempotency
from apps.organizations.models import User
from apps.organizations.serializers import MAX_PASSWORD

Result = TypeVar("Result")
# The hidden field that identifies one submission, and its maximum length.
ONCE: Final = "once"
_MAX_ONCE: Final = 100
# The rules of `AUTH_PASSWORD_VALIDATORS` in one sentence.
PASSWORD_RULES: Final = gettext_lazy(
    "At least 8 characters, not only digits, none that many people use, and not much like your name or address."
)
# Query parameters without a field on the page; their errors are shown above it.
_UNSEEN: Final = ("by", "cursor", "limit")
# Parts of the names of secret fields.
_SECRETS: Final = ("password", "token", "secret", "headers", "apikey", "routingkey", "serviceaccount")
# A member of a list in the path of an issue; the characters that a message quotes.
_MEMBER, _QUOTED = re.compile(r"(?P<list>.+)\[(?P<index>\d+)\]"), 80
# Seconds that a second submission waits for the first, and between checks.
_PATIENCE, _PAUSE = 10.0, 0.1


@dataclass(frozen=True)
class Form:
    """The values and errors of a form, by field; `problem` is an error of the whole form."""

    values: Mapping[str, Any] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def status(self) -> int:
        """The status of the page that shows the form."""
        return 400 if self.errors or self.problem else 200


def attempt(request: HttpRequest, work: Callable[[], Result]) -> tuple[Result | None, Form]:
    """Run the action of a form. Return its result, or None and the form with its values and errors."""
    try:
        return work(), Form()
    except ApiError as error:
        return None, refused(request.POST, error)


def refused(posted: QueryDict, error: ApiError) -> Form:
    """Return the submitted form with the error beside its field; secrets are left out."""
    values = {name: values[-1] for name, values in posted.lists() if values and not _is_secret(name)}
    if isinstance(error, InvalidFields):
        issues = [_placed(issue.path, error_words(issue.message), posted) for issue in error.issues]
    else:
        issues = [_placed(error.param or "", error_words(error.message), posted)]
    errors = {path: message for path, message in reversed(issues) if path in posted and path not in _UNSEEN}
    others = [f"{path}: {message}" if path else message for path, message in issues if path not in errors]
    return Form(values, errors, "; ".join(others))


def error_words(message: str) -> str:
    """Return the message of an error in the language of the page; what has no translation stays in English."""
    words = translated(message)
    return words if words != message else translated_sentence(message, ERRORS)


def read_form(
    request: HttpRequest,
    shape: type[serializers.BaseSerializer[Any]],
    *,
    leave_out: Collection[str] = (),
    never_empty: Collection[str] = (),
    about: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Return the form's values as the serializer reads them; `given` are fields, by wire name, that no form can set.

    `leave_out` are fields of the form to ignore; `never_empty` are fields of a change that must not be emptied, instead
    of staying unchanged; `about` is the serializer's context.

    Raises InvalidFields.
    """
    body = {name: value for name, value in body_of(request.POST, shape).items() if name not in leave_out} | given
    emptied = [name for name in never_empty if name in request.POST and not request.POST[name].strip()]
    if emptied:
        raise InvalidFields([Issue(name, "Required") for name in emptied])
    return _read(shape, body, gettext("This form is not valid"), about)


def require_typed(request: HttpRequest, name: str, expected: str) -> None:
    """Check that the user typed the name of the thing to delete. Raises InvalidRequest."""
    if " ".join(request.POST.get(name, "").split()) != " ".join(expected.split()):
        raise InvalidRequest("The name does not match; nothing was deleted", param=name)


def read_proof(request: HttpRequest) -> Proof:
    """Return the values of `parts/proof_fields.html`."""
    password, code = request.POST.get("password", "")[:MAX_PASSWORD], request.POST.get("code", "").strip()[:MAX_CODE]
    return Proof(password=password or None, code=code or None)


def is_unticked(request: HttpRequest, name: str) -> bool:
    """Return whether a checkbox was shown and left empty."""
    return request.POST.getlist(name)[-1:] == ["false"]


def read_query(request: HttpRequest, shape: type[serializers.BaseSerializer[Any]], **given: Any) -> dict[str, Any]:
    """Return the query parameters as the serializer reads them; empty filters are ignored. `given` as in `read_form`.
    Raises InvalidFields.
    """
    empty: Any = shape()
    said = {name: request.GET[name] for name in empty.fields if request.GET.get(name, "").strip()}
    return _read(shape, {**said, **given}, gettext("This address is not valid"))


def body_of(posted: QueryDict, shape: Any, prefix: str = "") -> dict[str, Any]:
    """Return the JSON object of a form, with the serializer's fields that the form has.

    Nested fields are named `outer.inner`; an empty text is null if the field allows null, else absent.
    """
    body: dict[str, Any] = {}
    for name, kind in shape().fields.items():
        path = f"{prefix}{name}"
        if isinstance(kind, serializers.Serializer):
            if any(key.startswith(f"{path}.") for key in posted):
                inner = body_of(posted, type(kind), f"{path}.")
                body[name] = inner if any(value is not None for value in inner.values()) else None
        elif path in posted:
            value = _value_of(posted, path, kind)
            if value is not None or kind.allow_null:
                body[name] = value
    return body


def do_once(request: HttpRequest, user: User, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run the action of a form once, even if it is submitted twice; return the first result, which is JSON.

    The work and the note that it was done share a transaction. Raises the errors of the work, and InvalidRequest for a
    form without its token or if the first submission takes too long.
    """
    claim = _claim_of(request, user)
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return _result_of(idempotency.answer_once(claim, lambda: Response(work())))
        except InvalidRequest as error:
            if error.code != "idempotency_key_in_use" or time.monotonic() > end:
                raise
        time.sleep(_PAUSE)


def once_key(request: HttpRequest, user: User) -> str:
    """Return the key by which a resubmitted form finds its row, for work that calls other services and so cannot run in
    the transaction of `do_once`. Raises InvalidRequest for a form without its token.
    """
    claim = _claim_of(request, user)
    return sha256("\n".join((str(claim.user_id), claim.route, claim.key)).encode()).hexdigest()


def _read(shape: Any, said: Mapping[str, Any], problem: str, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    serializer: Any = shape(data=said, context=dict(about or {}))
    # In English, as the API has them: the page translates our sentences, not the framework's.
    with override(settings.LANGUAGE_CODE):
        is_valid = serializer.is_valid()
    if not is_valid:
        raise find_error(ValidationError(serializer.errors)) or InvalidRequest(problem)
    return dict(serializer.validated_data)


def _claim_of(request: HttpRequest, user: User) -> idempotency.Claim:
    token = request.POST.get(ONCE, "")
    if not 0 < len(token) <= _MAX_ONCE or not (token.isascii() and token.isprintable()):
        raise InvalidRequest("This form is incomplete; reload the page and send it again")
    said = sorted((name, values) for name, values in request.POST.lists() if name != "csrfmiddlewaretoken")
    text = json.dumps([request.path, said])
    return idempotency.Claim(
        user.id, request.path[:200], token, hmac.digest(settings.SECRET_KEY.encode(), text.encode(), "sha256")
    )


def _result_of(response: Any) -> dict[str, Any]:
    if isinstance(response, HttpResponse) and not isinstance(response, Response):
        return dict(json.loads(response.content))
    return dict(response.data)


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRETS)


def _placed(path: str, message: str, posted: QueryDict) -> tuple[str, str]:
    """Return the form field of an issue in the API's body, with its message; the path itself if no field matches.

    A member of a list is a line of the field, which the message quotes; a field of one object (`config.terms`) has its
    own name in the form.
    """
    member = _MEMBER.fullmatch(path)
    whole = member["list"] if member else path
    outer, _, inner = whole.rpartition(".")
    name = whole if whole in posted else inner if "." not in outer and inner in posted else ""
    if not name:
        return path, message
    lines = [line.strip() for line in str(posted[name]).splitlines() if line.strip()]
    if member is None or int(member["index"]) >= len(lines):
        return name, message
    line = lines[int(member["index"])]
    return name, f"“{line if len(line) <= _QUOTED else f'{line[:_QUOTED]}…'}”: {message}"


def _value_of(posted: QueryDict, path: str, kind: Any) -> Any:
    """Return a field's value as JSON would hold it; an unreadable value stays text, which the serializer rejects."""
    # A checkbox sends a hidden `false`, and `true` if it is ticked.
    text = posted.getlist(path)[-1]
    if isinstance(kind, serializers.ListField | serializers.ManyRelatedField | serializers.MultipleChoiceField):
        lines = posted.getlist(path) if len(posted.getlist(path)) > 1 else text.splitlines()
        return [line.strip() for line in lines if line.strip()]
    if isinstance(kind, serializers.DictField | serializers.JSONField):
        try:
            return json.loads(text) if text.strip() else None
        except (ValueError, RecursionError):
            return text
    if isinstance(kind, BooleanField | serializers.BooleanField):
        return {"true": True, "on": True, "false": False}.get(text, text)
    if text.strip() == "" and not getattr(kind, "allow_blank", False):
        return None
    if isinstance(kind, IntegerField | serializers.IntegerField):
        digits = text.strip()
        return int(digits) if digits.lstrip("-").isdecimal() and len(digits) < 20 else text
    return text
