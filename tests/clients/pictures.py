"""The smallest picture and document there are, so that no test needs the internet."""

from __future__ import annotations

import base64

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PIXEL_URL = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
PAGE = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
