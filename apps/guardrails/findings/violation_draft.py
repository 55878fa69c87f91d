"""A violation as the web process drafts it and the settler stores it. The settler loads nothing that scans."""

from __future__ import annotations

import msgspec


class ViolationDraft(msgspec.Struct, frozen=True, kw_only=True):
    """One violation, before it is known whose: the columns that a finding has a word for.

    `matched_content` is masked, and empty where it must not be kept; `content_hash` tells the same content again.
    """

    rule_id: str
    rule_name: str
    category: str
    action_taken: str
    matched_pattern: str
    matched_content: str
    content_hash: str
