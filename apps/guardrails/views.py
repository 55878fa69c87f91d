"""The endpoints below `/guardrails`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.http import HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.guardrails import actions
from apps.guardrails.access import access_custom_rule, access_guarded
from apps.guardrails.configuration.load_config import list_custom_rules
from apps.guardrails.models import GuardrailConfig
from apps.guardrails.rule_thread import loaded_rules
from apps.guardrails.serializers import (
    CustomRuleChangesShape,
    CustomRuleShape,
    GuardrailChangesShape,
    GuardrailConfigShape,
    NewCustomRuleShape,
    StatsQuery,
    SystemRuleShape,
    TriedContentShape,
    TriedFindingShape,
    ViolationShape,
    ViolationsQuery,
)
from apps.guardrails.stored_violations import ENFORCED_ACTIONS, count_since, find_page
from apps.guardrails.trial import try_guardrails
from apps.kernel.rest.endpoint import PaginationShape, described
from apps.kernel.rest.serializers import Nothing
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.journal import idempotency


class GuardrailConfiguration(MemberEndpoint):
    """`GET /guardrails/config/{orgId}`, `PUT /guardrails/config/{orgId}`."""

    @described("GuardrailConfigurationOrNull", refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> HttpResponse:
        """Show the organization's guardrail configuration; null if it was never configured.

        Without one no system rule is in force; custom rules are.
        """
        organization = access_guarded(self.user, organization_id)
        row = GuardrailConfig.objects.filter(organization=organization).first()
        return Response(GuardrailConfigShape(row).data) if row else JsonResponse(None, safe=False)

    @described("GuardrailConfiguration", body=GuardrailChangesShape, refuses=(403, 404))
    def put(self, request: Request, organization_id: str) -> Response:
        """Change the fields that are given and keep the others; a field that was never set has its default."""
        organization = access_guarded(self.user, organization_id)
        changed = actions.change_config(organization=organization, changes=self.read(GuardrailChangesShape))
        return Response(GuardrailConfigShape(changed).data)


class GuardrailReset(MemberEndpoint):
    """`POST /guardrails/config/{orgId}/reset`."""

    @described("GuardrailConfiguration", body=Nothing, refuses=(403, 404))
    def post(self, request: Request, organization_id: str) -> Response:
        """Reset the configuration to its defaults; custom rules stay."""
        organization = access_guarded(self.user, organization_id)
        self.read(Nothing)
        return Response(GuardrailConfigShape(actions.reset_config(organization=organization)).data)


class GuardrailRules(MemberEndpoint):
    """`GET /guardrails/rules/{orgId}`, `POST /guardrails/rules/{orgId}`."""

    def prepare(self) -> None:
        """Look up the address of an outside guard: before anything is written, so that nothing waits for it."""
        organization = access_guarded(self.user, self.kwargs["organization_id"])
        given = self.read(NewCustomRuleShape)
        actions.check_rule(organization=organization, type=given["type"], config=given["config"])

    @described({"rules": CustomRuleShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's custom rules, in the order in which they run."""
        organization = access_guarded(self.user, organization_id)
        return Response({"rules": CustomRuleShape(list_custom_rules(organization.id), many=True).data})

    @described("CustomRule", body=NewCustomRuleShape, refuses=(403, 404))
    def post(self, request: Request, organization_id: str) -> Response:
        """Add a custom rule."""
        organization = access_guarded(self.user, organization_id)
        created = actions.create_rule(organization=organization, **self.read(NewCustomRuleShape))
        return Response(CustomRuleShape(created).data)


class OneGuardrailRule(MemberEndpoint):
    """`PATCH /guardrails/rules/{orgId}/{ruleId}`, `DELETE /guardrails/rules/{orgId}/{ruleId}`."""

    @described("CustomRule", body=CustomRuleChangesShape, refuses=(403, 404))
    def patch(self, request: Request, organization_id: str, rule_id: str) -> Response:
        """Change a custom rule; a new `config` replaces the old one as a whole."""
        rule = access_custom_rule(self.user, organization_id, rule_id)
        changes = self.read(CustomRuleChangesShape)
        if "config" in changes:
            actions.check_rule(organization=rule.organization, type=rule.type, config=changes["config"])
        return Response(CustomRuleShape(actions.change_rule(rule=rule, changes=changes)).data)

    @described({"success": serializers.BooleanField()}, refuses=(403, 404))
    def delete(self, request: Request, organization_id: str, rule_id: str) -> Response:
        """Remove a custom rule; its recorded violations stay."""
        actions.delete_rule(rule=access_custom_rule(self.user, organization_id, rule_id))
        return Response({"success": True})


class GuardrailViolations(MemberEndpoint):
    """`GET /guardrails/violations/{orgId}`."""

    @described(
        {"violations": ViolationShape(many=True), "pagination": PaginationShape()},
        query=ViolationsQuery,
        refuses=(403, 404),
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """List violations, newest first, one page at a time.

        Findings of rules in observe mode are listed for `actionTaken=observed` only.
        """
        organization = access_guarded(self.user, organization_id)
        page = find_page(organization.id, self.read_query(ViolationsQuery))
        return Response({"violations": ViolationShape(page.rows, many=True).data, "pagination": page.pagination})


class GuardrailStats(MemberEndpoint):
    """`GET /guardrails/stats/{orgId}`."""

    @described(
        {
            name: serializers.IntegerField(min_value=0)
            for name in ("blocked", "neutralized", "redacted", "warned", "total", "observed")
        },
        query=StatsQuery,
        refuses=(403, 404),
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """Count violations by action; `total` leaves out those of rules in observe mode (`observed`)."""
        organization = access_guarded(self.user, organization_id)
        days = self.read_query(StatsQuery)["days"]
        counted = count_since(organization.id, timezone.now() - timedelta(days=days))
        return Response({**counted, "total": sum(counted[kind] for kind in ENFORCED_ACTIONS)})


class GuardrailTest(MemberEndpoint):
    """`POST /guardrails/test/{orgId}`."""

    @described(
        {
            "passed": serializers.BooleanField(),
            "blocked": serializers.BooleanField(),
            "violations": TriedFindingShape(many=True),
            "rulesChecked": serializers.IntegerField(min_value=0),
        },
        body=TriedContentShape,
        refuses=(403, 404),
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Try the rules on a text, also while guardrails are off; nothing is recorded.

        Where nothing was ever configured, the defaults are tried.
        """
        organization = access_guarded(self.user, organization_id)
        tried = try_guardrails(organization.id, self.read(TriedContentShape)["content"])
        return Response(
            {
                "passed": tried.passed,
                "blocked": tried.blocked,
                "violations": TriedFindingShape(tried.findings, many=True).data,
                "rulesChecked": tried.rules_checked,
            }
        )

    def _post_once(self, post: Callable[..., HttpResponseBase], request: Request, **names: str) -> HttpResponseBase:
        """Run it each time: nothing changes, and neither the text nor the result is stored."""
        idempotency.claim_of(request, self.user.id)
        return post(request, **names)


class SystemRules(MemberEndpoint):
    """`GET /guardrails/system-rules`."""

    @described({"rules": SystemRuleShape(many=True)})
    def get(self, request: Request) -> Response:
        """List the built-in rules, for every signed-in user."""
        return Response({"rules": SystemRuleShape(loaded_rules().values(), many=True).data})
