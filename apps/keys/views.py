"""`/keys/api`: parse, act or query, present."""

from __future__ import annotations

from datetime import timedelta

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.endpoint import described, message_field
from apps.keys import actions
from apps.keys.access import access_key, access_keys, access_rule
from apps.keys.serializers import (
    ApiKeyShape,
    IamRuleShape,
    KeyChangesShape,
    KeyLimitShape,
    KeysQuery,
    NewApiKeyShape,
    NewKeyShape,
    NewRuleShape,
    PlanLimitsShape,
    RotationShape,
    RuleChangesShape,
    shape_of_new,
)
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import Role
from apps.organizations.plans import limits_of


class ApiKeys(MemberEndpoint):
    """`POST /keys/api`, `GET /keys/api`."""

    @described({"apiKey": NewApiKeyShape()}, body=NewKeyShape, refuses=(403, 404, 410))
    def post(self, request: Request) -> Response:
        """Create an API key; only this answer contains its token."""
        return Response({"apiKey": shape_of_new(actions.create_api_key(user=self.user, **self.read(NewKeyShape)))})

    @described(
        {
            "apiKeys": ApiKeyShape(many=True),
            "userRole": serializers.ChoiceField(Role.choices),
            "planLimits": PlanLimitsShape(required=False),
        },
        query=KeysQuery,
        refuses=(403, 404),
    )
    def get(self, request: Request) -> Response:
        """List your API keys; with `filter=all` everyone's if you are an admin or owner, and those of your teams if you
        lead some."""
        query = self.read_query(KeysQuery)
        seen = access_keys(
            self.user,
            project_id=query.get("project_id"),
            team_id=query.get("team_id"),
            everyones=query["filter"] == "all",
        )
        answer = {"apiKeys": ApiKeyShape(seen.keys, many=True).data, "userRole": seen.role}
        if seen.project is not None:
            plan = seen.project.organization.plan
            answer["planLimits"] = {
                "currentCount": actions.count_of_keys(seen.project),
                "maxKeys": limits_of(plan).api_keys_per_project,
                "plan": plan,
            }
        return Response(answer)


class OneApiKey(MemberEndpoint):
    """`PATCH /keys/api/{id}`, `DELETE /keys/api/{id}`."""

    @described({"message": message_field(), "apiKey": ApiKeyShape()}, body=KeyChangesShape, refuses=(403, 404))
    def patch(self, request: Request, key_id: str) -> Response:
        """Activate or deactivate an API key, or change its description, limits or team."""
        key = access_key(self.user, key_id)
        changes = self.read(KeyChangesShape)
        changed = actions.change_api_key(key=key, changes=changes, user=self.user)
        message = f"API key status updated to {changed.status}" if "status" in changes else "API key updated"
        return Response({"message": message, "apiKey": ApiKeyShape(changed).data})

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, key_id: str) -> Response:
        """Delete an API key; it stops working."""
        actions.delete_api_key(key=access_key(self.user, key_id))
        return Response({"message": "API key deleted"})


class RotateApiKey(MemberEndpoint):
    """`POST /keys/api/{id}/rotate`."""

    @described({"message": message_field(), "apiKey": NewApiKeyShape()}, body=RotationShape, refuses=(403, 404, 410))
    def post(self, request: Request, key_id: str) -> Response:
        """Replace an API key by a new one with the same limits and rules; the old key ends now or after some hours."""
        key = access_key(self.user, key_id)
        overlap = timedelta(hours=self.read(RotationShape)["overlap_hours"])
        created = actions.replace_api_key(key=key, user=self.user, overlap=overlap)
        return Response({"message": "API key rotated", "apiKey": shape_of_new(created)})


class ApiKeyLimit(MemberEndpoint):
    """`PATCH /keys/api/limit/{id}`."""

    @described({"message": message_field(), "apiKey": ApiKeyShape()}, body=KeyLimitShape, refuses=(403, 404))
    def patch(self, request: Request, key_id: str) -> Response:
        """Set or remove the API key's usage limit."""
        key = access_key(self.user, key_id)
        changed = actions.change_api_key(key=key, changes=self.read(KeyLimitShape))
        return Response({"message": "API key usage limit updated", "apiKey": ApiKeyShape(changed).data})


class IamRules(MemberEndpoint):
    """`POST /keys/api/{id}/iam`, `GET /keys/api/{id}/iam`."""

    @described({"message": message_field(), "rule": IamRuleShape()}, body=NewRuleShape, refuses=(403, 404))
    def post(self, request: Request, key_id: str) -> Response:
        """Add an access rule to an API key."""
        key = access_key(self.user, key_id)
        created = actions.create_rule(key=key, **self.read(NewRuleShape))
        return Response({"message": "IAM rule created", "rule": IamRuleShape(created).data})

    @described({"rules": IamRuleShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, key_id: str) -> Response:
        """List the API key's access rules, oldest first."""
        rules = access_key(self.user, key_id).iam_rules.order_by("created_at", "id")
        return Response({"rules": IamRuleShape(rules, many=True).data})


class OneIamRule(MemberEndpoint):
    """`PATCH /keys/api/{id}/iam/{ruleId}`, `DELETE /keys/api/{id}/iam/{ruleId}`."""

    @described({"message": message_field(), "rule": IamRuleShape()}, body=RuleChangesShape, refuses=(403, 404))
    def patch(self, request: Request, key_id: str, rule_id: str) -> Response:
        """Change an access rule."""
        rule = access_rule(self.user, key_id, rule_id)
        changed = actions.change_rule(rule=rule, changes=self.read(RuleChangesShape))
        return Response({"message": "IAM rule updated", "rule": IamRuleShape(changed).data})

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, key_id: str, rule_id: str) -> Response:
        """Remove an access rule."""
        actions.delete_rule(rule=access_rule(self.user, key_id, rule_id))
        return Response({"message": "IAM rule deleted"})
