"""Parts of a deployment, as far as tests can check them without one: image, compose file, chart, units.

`script/deployment-check` asks helm, promtool and Kubernetes' own schemas, where these programs are.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from gateway_project.configuration.data_directory import PROJECT
from gateway_project.configuration.server_config import read_procfile

DEPLOY = PROJECT / "deploy"
CHART = DEPLOY / "helm" / "model-gateway"
DOCKERFILE = (PROJECT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((PROJECT / "compose.yaml").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())}
OURS = ("prepare", "web", "settler", "worker", "beat")
SECRETS = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "API_KEY_PEPPER", "ENCRYPTION_KEYS", "METRICS_TOKEN")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def command_of(text: str) -> list[str]:
    """Return a command as the Procfile and everybody else mean it: without folders, ours under one name."""
    words = [Path(word).name if "/bin/" in word else word for word in shlex.split(text)]
    if words[:3] == ["python", "-m", "gateway_project"]:
        return ["gateway", *words[3:]]
    return ["gateway", "manage", *words[2:]] if words[:2] == ["python", "manage.py"] else words


def without_schedule(words: list[str]) -> list[str]:
    """Return a command without the place of beat's schedule, which is each deployment's own."""
    return words[: words.index("--schedule")] if "--schedule" in words else words


PROCESSES = {name: without_schedule(command_of(line)) for name, line in read_procfile(PROJECT / "Procfile").items()}


class TestImage:
    def test_it_runs_without_rights_what_the_procfile_runs(self) -> None:
        stages = re.split(r"^FROM .*$", DOCKERFILE, flags=re.MULTILINE)[1:]
        assert len(stages) == 2
        last = stages[1]
        assert re.findall(r"^USER (.*)$", last, re.MULTILINE) == ["10001:10001"]
        assert last.index("USER ") > last.rindex("RUN ")
        [command] = re.findall(r"^CMD (.*)$", last, re.MULTILINE)
        assert json.loads(command) == PROCESSES["web"]
        assert "HEALTHCHECK" in last
        assert "/livez" in last
        assert "pip install" not in last
        assert re.search(r"--require-hashes -r pinned\.txt", stages[0])

    def test_what_it_copies_is_there_and_is_let_into_the_build(self) -> None:
        copied = {
            word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
        }
        let_in = {line[1:] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
        assert copied == let_in
        assert [name for name in copied if not (PROJECT / name).exists()] == []

    def test_its_base_is_named_by_its_digest(self) -> None:
        assert re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.MULTILINE)[0][0] == "PYTHON"
        bases = re.findall(r"^ARG PYTHON=(.*)$", DOCKERFILE, re.MULTILINE)
        assert [re.fullmatch(r"python:[\w.-]+@sha256:[0-9a-f]{64}", base) is not None for base in bases] == [True]
        assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON}"}

    @pytest.mark.parametrize("file", ["Dockerfile", "script/wheel", "script/setup"])
    def test_nothing_is_fetched_without_its_hash(self, file: str) -> None:
        """Each call of pip has the hashes, or fetches nothing; a build in isolation would fetch its own tools."""
        text = re.sub(r"\\\n\s*", " ", (PROJECT / file).read_text())
        calls = re.findall(r"pip(?:\"|')? (?:install|wheel) [^\n]*?(?= && |\n|$)", text)
        assert calls
        assert [call for call in calls if "--require-hashes" not in call and "--no-index" not in call] == []
        assert [call for call in calls if re.search(r" \.$", call) and "--no-build-isolation" not in call] == []

    def test_what_builds_the_wheel_is_what_the_project_asks_for(self) -> None:
        pins = dict(re.findall(r"^([\w-]+)==(\S+)", (PROJECT / "requirements-build.txt").read_text(), re.MULTILINE))
        [wanted] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["build-system"]["requires"]
        requirement = Requirement(wanted)
        assert requirement.name == "hatchling"
        assert requirement.specifier.contains(pins["hatchling"])

    def test_no_secret_is_built_in(self) -> None:
        assert [name for name in SECRETS if name in DOCKERFILE] == []


class TestCompose:
    def test_every_process_has_its_service(self) -> None:
        commands = {name: without_schedule(COMPOSE["services"][name].get("command", [])) for name in OURS}
        assert commands == {**PROCESSES, "prepare": ["gateway", "manage", "prepare"], "web": []}

    def test_ours_have_a_read_only_root_and_no_rights(self) -> None:
        for name in OURS:
            service = COMPOSE["services"][name]
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
            assert service["security_opt"] == ["no-new-privileges:true"]

    def test_other_images_are_named_by_a_digest_or_may_be(self) -> None:
        """Where no digest could be looked up at its source, a variable takes one."""
        images = {name: one["image"] for name, one in COMPOSE["services"].items() if name not in OURS}
        assert re.fullmatch(r"postgres:18-bookworm@sha256:[0-9a-f]{64}", images.pop("postgres"))
        assert images.pop("cache") == images["valkey"]
        for name, image in images.items():
            assert re.fullmatch(rf"\$\{{{name.upper()}_IMAGE:-[\w./-]+:[\w.-]+\}}", image), name

    def test_secrets_come_from_outside(self) -> None:
        environment = COMPOSE["services"]["web"]["environment"]
        for name in SECRETS:
            assert re.search(r"\$\{[A-Z_]+:\?", environment[name]), name

    def test_nothing_is_prepared_before_the_stores_answer_or_served_before_that(self) -> None:
        services = COMPOSE["services"]
        assert {one["condition"] for one in services["prepare"]["depends_on"].values()} == {"service_healthy"}
        for name in ("web", "settler", "worker", "beat"):
            assert services[name]["depends_on"]["prepare"]["condition"] == "service_completed_successfully"

    def test_volumes_files_and_services_that_are_named_are_there(self) -> None:
        for name, service in COMPOSE["services"].items():
            for volume in service.get("volumes", []):
                source = volume.partition(":")[0]
                assert source in COMPOSE["volumes"] or (PROJECT / source).is_file(), (name, source)
            assert set(service.get("depends_on", {})) <= set(COMPOSE["services"])

    def test_the_store_keeps_what_it_is_given(self) -> None:
        command = COMPOSE["services"]["valkey"]["command"]
        assert command[1:5] == ["--appendonly", "yes", "--maxmemory-policy", "noeviction"]


class TestChart:
    def test_its_values_fit_their_schema(self) -> None:
        jsonschema.Draft7Validator.check_schema(SCHEMA)
        jsonschema.validate(VALUES, SCHEMA)

    @pytest.mark.parametrize(
        "change",
        [
            {"environment": {**VALUES["environment"], "SECRET_KEY": "in clear"}},
            {"environment": {"PUBLIC_URL": "https://x"}},
            {"secretRefs": []},
            {"web": {**VALUES["web"], "replicas": 0}},
            {"replicas": 3},
        ],
    )
    def test_values_that_are_not_fit_are_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**VALUES, **change}, SCHEMA)

    def test_every_value_that_a_template_reads_is_there_and_every_value_is_read(self) -> None:
        read = {path for text in TEMPLATES.values() for path in re.findall(r"\.Values\.([\w.]+)", text)}
        for path in read:
            found: Any = VALUES
            for name in path.split("."):
                assert name in found, path
                found = found[name]
        # `tasks.yaml` goes through these two by name.
        assert {path.partition(".")[0] for path in read} | {"worker", "beat"} == set(VALUES)

    def test_every_process_is_in_it(self) -> None:
        assert TEMPLATES["web.yaml"].count("command: [gateway, manage, settler]") == 1
        assert "command: [gateway, manage, prepare]" in TEMPLATES["prepare.yaml"]
        for name in ("worker", "beat"):
            words = " ".join(f'"{word}"' for word in PROCESSES[name])
            assert f'"{name}" (list {words}' in TEMPLATES["tasks.yaml"]

    def test_it_is_safe_by_default(self) -> None:
        parts = TEMPLATES["_parts.tpl"]
        for line in (
            "runAsNonRoot: true",
            "readOnlyRootFilesystem: true",
            "allowPrivilegeEscalation: false",
            "capabilities: {drop: [ALL]}",
            "automountServiceAccountToken: false",
            "seccompProfile: {type: RuntimeDefault}",
        ):
            assert line in parts
        kinds = set(re.findall(r"^kind: (\w+)$", "\n".join(TEMPLATES.values()), re.MULTILINE))
        assert kinds == {
            "Deployment",
            "HorizontalPodAutoscaler",
            "Ingress",
            "Job",
            "NetworkPolicy",
            "PodDisruptionBudget",
            "Service",
            "StatefulSet",
        }
        assert "helm.sh/hook: pre-install,pre-upgrade" in TEMPLATES["prepare.yaml"]

    def test_its_version_is_the_products(self) -> None:
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        assert f'version = "{chart["appVersion"]}"' in (PROJECT / "pyproject.toml").read_text()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_what_the_procfile_runs_without_rights(path: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's words are as they are written
    unit.read_string(path.read_text())
    name = path.stem.removeprefix("model-gateway-")
    expected = {**PROCESSES, "prepare": ["gateway", "manage", "prepare"]}[name]
    assert without_schedule(command_of(unit["Service"]["ExecStart"])) == expected
    assert (unit["Service"]["User"], unit["Service"]["NoNewPrivileges"]) == ("model-gateway", "yes")
    assert (unit["Service"]["ProtectSystem"], unit["Service"]["CapabilityBoundingSet"]) == ("strict", "")
    # Otherwise the journal has what a process says only once it has ended.
    assert "PYTHONUNBUFFERED=1" in unit["Service"]["Environment"].split()
    assert unit["Service"].get("CPUSchedulingPolicy") == ("batch" if name in {"settler", "worker", "beat"} else None)


def test_every_process_has_its_unit() -> None:
    assert {path.stem.removeprefix("model-gateway-") for path in UNITS} == {"prepare", *PROCESSES}
    target = (DEPLOY / "systemd" / "model-gateway.target").read_text()
    assert [name for name in PROCESSES if f"model-gateway-{name}.service" not in target] == []
