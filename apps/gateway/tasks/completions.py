"""Task `completions`: each prompt is answered as a chat of one message, as text alone (legacy completions).

Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from apps.gateway.tasks import chat

_PLACE: Final = re.compile(r"messages(\[\d+\])\.content\[0\]\.text")


def _path_for_client(path: str) -> str:
    # The first of several is named like the only one: a path does not say how many there are.
    return _PLACE.sub(lambda found: "prompt" if found[1] == "[0]" else f"prompt{found[1]}", path)


TASK = replace(chat.TASK, name="completions", path_for_client=_path_for_client)
