"""The last lines in the terminal."""

from __future__ import annotations

import json
from pathlib import Path

from gateway_project.configuration.server_config import ServerConfig
from gateway_project.processes.server import first_steps


def test_the_last_lines_say_where_to_go_and_with_which_key(tmp_path: Path) -> None:
    config = ServerConfig(tmp_path, "development", "127.0.0.1", 8123)
    without = first_steps(config)
    assert without[-1] == "  demo key    ./manage.py demo --key"
    person = {"email": "a@example.com", "password": "a password"}
    (tmp_path / "demo.json").write_text(json.dumps({"owner": person, "operator": person, "apiKey": "gw_dev_x"}))
    told = first_steps(config)
    assert told[1:4] == [
        "  console     http://127.0.0.1:8123/app/",
        "  admin       http://127.0.0.1:8123/admin/",
        "  docs        http://127.0.0.1:8123/docs/api",
    ]
    assert told[-1] == "  API key     gw_dev_x"


def test_in_production_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "demo.json").write_text("{}")
    assert first_steps(ServerConfig(tmp_path, "production", "127.0.0.1", 8123)) == []
