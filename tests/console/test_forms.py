"""Forms: what a form sends becomes what the API's bodies are, and is done once."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict
from django.test import RequestFactory

from apps.console.forms import ONCE, attempt, body_of, do_once, read_form, refused, require_typed
from apps.kernel.errors import InvalidRequest
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.keys.serializers import KeyChangesShape, NewKeyShape
from apps.organizations.models import IdempotentAnswer
from apps.organizations.serializers import NewProjectShape
from tests.support.cast import World


def posted(**fields: str) -> Any:
    return RequestFactory().post("/app/form", fields)


def test_texts_of_a_form_become_the_values_of_the_shape() -> None:
    fields = "name=x&cachingEnabled=false&cachingEnabled=true&hedgingEnabled=false&cacheDurationSeconds=60&mode="
    assert body_of(QueryDict(fields), NewProjectShape) == {
        "name": "x",
        "cachingEnabled": True,
        "hedgingEnabled": False,
        "cacheDurationSeconds": 60,
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("periodLimit.amount=&periodLimit.period=", {"periodLimit": None}),
        ("periodLimit.amount=5&periodLimit.period=day", {"periodLimit": {"amount": "5", "period": "day"}}),
        ("usageLimit=&requestsPerMinute=", {"usageLimit": None, "requestsPerMinute": None}),
        ("requestsPerMinute=many", {"requestsPerMinute": "many"}),
        (
            "allowedOrigins=https://a.example%0D%0A%0D%0A+https://b.example+",
            {"allowedOrigins": ["https://a.example", "https://b.example"]},
        ),
        ("unknown=1", {}),
    ],
)
def test_what_is_left_empty_is_null_where_that_may_be(query: str, expected: dict[str, Any]) -> None:
    assert body_of(QueryDict(query), NewKeyShape) == expected


def test_fields_that_no_form_may_choose_and_those_left_out() -> None:
    request = posted(description="a", projectId="mine", status="deleted")
    assert read_form(request, NewKeyShape, projectId="ours")["project_id"] == "ours"
    assert read_form(request, KeyChangesShape, leave_out=("status",)) == {"description": "a"}


def test_errors_stand_beside_their_fields_and_passwords_are_not_shown_again() -> None:
    request = posted(name="n", password="secret", newPassword="secret too")
    form = refused(request.POST, InvalidRequest("Wrong", param="name"))
    assert (form.errors, form.problem, form.status) == ({"name": "Wrong"}, "", 400)
    assert dict(form.values) == {"name": "n"}
    assert refused(request.POST, InvalidRequest("Wrong", param="elsewhere")).problem == "elsewhere: Wrong"


def test_what_is_inside_of_a_field_or_a_line_of_it_is_told_beside_the_field() -> None:
    request = posted(terms="fine\n\n((", models="", priority="1", **{"rule.a.enabled": "true"})
    issues = [
        Issue("config.terms[1]", "missing )"),
        Issue("ruleValue.models", "Must be a list"),
        Issue("priority", "Too low"),
        Issue("systemRules.a.priority", "No such thing"),
        Issue("config.terms[7]", "Too many"),
    ]
    form = refused(request.POST, InvalidFields(issues))
    assert form.errors == {"terms": "“((”: missing )", "models": "Must be a list", "priority": "Too low"}
    assert form.problem == "systemRules.a.priority: No such thing"
    long = refused(posted(terms="a" * 200).POST, InvalidFields([Issue("terms[0]", "Too long")]))
    assert long.errors == {"terms": f"“{'a' * 80}…”: Too long"}


def test_what_a_change_must_not_empty_is_refused_and_what_the_form_lacks_is_not() -> None:
    for text in ("", "  "):
        with pytest.raises(InvalidFields) as caught:
            read_form(posted(description=text), KeyChangesShape, never_empty=("description",))
        assert caught.value.issues == [Issue("description", "Required")]
    lacking = read_form(posted(allowedOrigins=""), KeyChangesShape, never_empty=("description",))
    assert lacking == {"allowed_origins": []}


def test_a_typed_name_must_be_the_name() -> None:
    require_typed(posted(name=" Acme   Ltd "), "name", "Acme Ltd")
    for typed in ("", "acme ltd", "Acme"):
        with pytest.raises(InvalidRequest):
            require_typed(posted(name=typed), "name", "Acme Ltd")


class TestOnce:
    @pytest.mark.parametrize("token", ["", "x" * 101, "\0", "a\nb", "ä"])
    def test_a_form_without_a_good_token_does_nothing(self, world: World, token: str) -> None:
        with pytest.raises(InvalidRequest, match="This form is incomplete"):
            do_once(posted(**{ONCE: token}), world.olivia, lambda: {"done": True})
        assert IdempotentAnswer.objects.count() == 0

    def test_the_second_time_is_told_what_the_first_did(self, world: World) -> None:
        done: list[int] = []

        def work() -> dict[str, Any]:
            done.append(1)
            return {"count": len(done)}

        request = posted(**{ONCE: "one", "name": "a"})
        assert [do_once(request, world.olivia, work) for _ in range(2)] == [{"count": 1}, {"count": 1}]
        # Another person's form, or another form of the same person, is a different one.
        assert do_once(request, world.adam, work) == {"count": 2}
        assert do_once(posted(**{ONCE: "two", "name": "a"}), world.olivia, work) == {"count": 3}
        # The same token on a form that says something else is refused.
        with pytest.raises(InvalidRequest):
            do_once(posted(**{ONCE: "one", "name": "b"}), world.olivia, work)
        assert len(done) == 3

    def test_what_was_refused_may_be_tried_again(self, world: World) -> None:
        def fail() -> dict[str, Any]:
            raise InvalidRequest("Not now", param="name")

        request = posted(**{ONCE: "one", "name": "a"})
        made, form = attempt(request, lambda: do_once(request, world.olivia, fail))
        assert (made, form.errors) == (None, {"name": "Not now"})
        assert IdempotentAnswer.objects.count() == 0
        assert do_once(request, world.olivia, lambda: {"done": True}) == {"done": True}

    @pytest.mark.parametrize("token", ["", "x" * 101, "\N{EN DASH}"])
    def test_a_form_without_its_token_does_nothing(self, world: World, token: str) -> None:
        with pytest.raises(InvalidRequest, match="incomplete"):
            do_once(posted(**{ONCE: token}), world.olivia, lambda: {"done": True})
