"""First steps: the last lines in the terminal once the server is ready, with the addresses and a key.

Uses the values that `manage.py demo` keeps in the home of a development server. Does not import Django.
"""

from __future__ import annotations

import json

from gateway_project.configuration.data_directory import MANAGE_COMMAND
from gateway_project.configuration.server_config import ServerConfig


def first_steps(config: ServerConfig) -> list[str]:
    """Return the lines; none in production, where addresses and keys are not printed."""
    if config.mode != "development":
        return []
    lines = [
        f"  start page  {config.url}/",
        f"  console     {config.url}/app/",
        f"  admin       {config.url}/admin/",
        f"  docs        {config.url}/docs/api",
    ]
    try:
        kept = json.loads((config.data_directory / "demo.json").read_text())
        lines += [
            f"  sign in as  {kept['owner']['email']}  {kept['owner']['password']}",
            f"  operator    {kept['operator']['email']}  {kept['operator']['password']}",
            f"  API key     {kept['apiKey']}",
        ]
    except (OSError, ValueError, KeyError, TypeError):
        lines.append(f"  demo key    {MANAGE_COMMAND} demo --key")
    return lines
