"""Audit entries are never changed, nor all taken away at once."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection


def test_the_audit_log_cannot_be_emptied(db: None) -> None:
    with (
        connection.cursor() as cursor,
        pytest.raises(IntegrityError, match="audit entries are never changed: TRUNCATE refused"),
    ):
        cursor.execute("TRUNCATE organizations_auditentry")
