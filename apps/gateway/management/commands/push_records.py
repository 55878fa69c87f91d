"""`python manage.py push_records < LOG`: records that a stopping process could leave to its log only, pushed after all.

Those whose requests were swept meanwhile are in the request log already, as failed ones that cost nothing, and stay so.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from django.core.management.base import BaseCommand

from apps.gateway.settlement import outbox
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt

# In a line for people, and in one of JSON, whose fields come in any order.
_EVENT, _SEALED = "records.left_to_the_log", re.compile(r"\bsealed\W+(gAAAA[\w=-]+)")


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Push the records that are sealed in a log, which is read from standard input."

    def handle(self, *args: Any, **options: Any) -> None:
        """Push each, and tell how many there were."""
        pushed = unreadable = 0
        for line in sys.stdin:
            if _EVENT in line and (found := _SEALED.search(line)):
                try:
                    record = decrypt(found[1].encode())
                except UnreadableSecretError:
                    unreadable += 1
                    continue
                outbox.push("", record)
                pushed += 1
        self.stdout.write(f"{pushed} records pushed, {unreadable} that no key of ENCRYPTION_KEYS opens")
