"""`GET /v1/images/files/{id}`: the picture that a signed link leads to. No key is asked for: the link is one."""

from __future__ import annotations

from django.utils import timezone

from apps.batches.file_endpoints import content_answer
from apps.batches.kept_pictures import find_picture
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_with_errors


def read_picture(request: ClientRequest) -> ClientResponse:
    """Serve a picture as long as its link holds."""

    def read() -> ClientResponse:
        parameter = request.query_parameter
        picture = find_picture(request.parameters["file_id"], parameter("expires"), parameter("signature"))
        answer = content_answer(picture.row, picture.media_type, [("Content-Disposition", "inline")])
        left = int((picture.expires_at - timezone.now()).total_seconds())
        # Only the reader may cache it, no longer than the link holds.
        answer.cache_control = f"private, max-age={max(left, 0)}, immutable"
        return answer

    return answer_with_errors(request, "images_files", OPENAI, read)
