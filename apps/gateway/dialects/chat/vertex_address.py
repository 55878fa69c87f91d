"""Vertex AI addresses: Google Cloud's hosts by location, and the paths of a publisher's models."""

from __future__ import annotations

import re
from urllib.parse import quote

# A base URL as it comes of the pattern `https://{location}-aiplatform.googleapis.com/…` for locations that are not a
# region of Google's and have another host.
_HOST = re.compile(r"^https://(global|us|eu)-aiplatform\.googleapis\.com(?=[/:]|$)")
_HOSTS = {
    "global": "https://aiplatform.googleapis.com",
    "us": "https://aiplatform.us.rep.googleapis.com",
    "eu": "https://aiplatform.eu.rep.googleapis.com",
}


def url_of_path(base_url: str, path: str) -> str:
    """Return the whole URL of a path below a base URL, at the host that serves the base URL's location."""
    return _HOST.sub(lambda found: _HOSTS[found[1]], base_url) + path


def model_path(publisher: str, model_name: str, method: str) -> str:
    """Return the path of a publisher's model; an edition stands behind an `@`."""
    return f"/publishers/{publisher}/models/{quote(model_name, safe='@')}:{method}"
