"""`/keys/api`: parse, act or query, present."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from apps.keys.access import access_keys
from apps.keys.actions import count_of_keys, create_api_key
from apps.keys.serializers import ApiKeyShape, KeysQuery, NewKeyShape, shape_of_new
from apps.organizations.plans import limits_of
from apps.organizations.sessions import MemberEndpoint


class ApiKeys(MemberEndpoint):
    """`POST /keys/api`, `GET /keys/api`."""

    def post(self, request: Request) -> Response:
        """Create a key; its token is in this answer and in no other."""
        return Response({"apiKey": shape_of_new(create_api_key(user=self.user, **self.read(NewKeyShape)))})

    def get(self, request: Request) -> Response:
        """List the user's keys, or everyone's where the user is an admin or owner."""
        query = self.read_query(KeysQuery)
        seen = access_keys(self.user, project_id=query.get("project_id"), everyones=query["filter"] == "all")
        answer = {"apiKeys": ApiKeyShape(seen.keys, many=True).data, "userRole": seen.role}
        if seen.project is not None:
            plan = seen.project.organization.plan
            answer["planLimits"] = {
                "currentCount": count_of_keys(seen.project),
                "maxKeys": limits_of(plan).api_keys_per_project,
                "plan": plan,
            }
        return Response(answer)
