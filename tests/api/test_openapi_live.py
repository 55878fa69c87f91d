"""The document against the running product: schemathesis asks what the document allows, and what it forbids.

All of schemathesis' checks, a fixed seed, and few examples an operation; `SCHEMATHESIS_EXAMPLES` asks for more. Besides
the document it gets a session, the ids of existing things, and the operations where a schema cannot state all that a
request must be (a good password, an existing model, a moment in the future), so that a valid body may be refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.stack.product import PROJECT, Product

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

CHECK = PROJECT / "tests" / "support" / "refusals_of_valid_bodies.py"
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "3")
# The statuses that a valid request may get: also those for missing credits, plan, key or thing.
TAKEN = '"2xx", 401, 402, 403, 404, 409, 410, 422, 429'
# They take a page of any size, one value where a list is meant, and fields in either of two spellings.
GOOGLES = (
    *("generateContent", "generateContentByName", "generateContentAtV1", "streamGenerateContentAtV1"),
    *("streamGenerateContentByName", "countTokensByName", "embedContentByName", "batchEmbedContentsByName"),
    "countTokensAtV1",
    *("embedContentAtV1", "batchEmbedContentsAtV1", "generatePublishersContentAtV1", "generateProjectsContentAtV1"),
    *("generatePublishersContent", "generateProjectsContent", "listGoogleModels"),
)
# Operations whose body must be more than a schema can say.
MORE_THAN_A_SCHEMA = (
    *("postSignUp", "postApiKeys", "patchOneApiKey", "patchOneIamRule", "patchOneMember", "deleteOneMember"),
    *("getActivity", "getActivityExport", "postGuardrailRules", "patchOneGuardrailRule", "getGuardrailViolations"),
    *("postPasskeySignIn", "postPasskeys", "postPasskeyOptions", "postRemovePasskey", "postTwoFactor"),
    *("postVerifyEmail", "postResetPassword", "postConfirmTwoFactor", "postDisableTwoFactor"),
    *("postProviderKeys", "chatCompletions", "messages", "countTokens", "generateImages", "editImages", "explainRoute"),
    *("createResponse", "countInputTokens", "createEmbeddings", "embed", "rerank", "rerankAtV2", "createModeration"),
    *(
        "cohereChat",
        "converse",
        "converseStream",
        "createCompletion",
        "createSpeech",
        "createTranscription",
        "createTranslation",
    ),
    *GOOGLES,
    # A cursor is something that is listed; a batch's file is one of requests.
    *("createFile", "listFiles", "createBatch", "listBatches", "createMessageBatch", "listMessageBatches"),
    # A cursor of Anthropic's list is a model that is listed, of OpenAI's an item; a response that is named is stored.
    *("listModels", "listConversationItems", "compactResponse"),
    # A message of a protocol, in a session or in the words of its headers.
    *("postMcpMessage", "resumeMcpStream", "endMcpSession"),
    *("postMcpServerMessage", "resumeMcpServerStream", "endMcpServerSession"),
    # A server's address must lead somewhere, and projects and clients exist.
    *("postMcpServers", "patchOneMcpServer", "revokeToken"),
    # So must a sink's, and each kind has fields of its own.
    *("postLogSinks", "patchOneLogSink", "postLogSinkTest"),
    *("postAlertDestinations", "patchOneAlertDestination", "postAlertDestinationTest", "postAlertRules"),
    # A server of models must answer, and prices come in pairs.
    *("postProviderKeyModels", "patchProviderKeyModels", "postProviderKeyProbe"),
    *("putProviderKeyReplicas", "patchProviderKeyReplicas"),
    "postChangeEmail",
    "postChangePassword",
    "postConfirmEmailChange",
)
# They say that payments are not set up, as they are not here.
OFF = ("postPaymentMethods", "postCardSetup", "postProSubscription", "postTopUps")
# It ends the key that the others are asked about.
TAKES_ITS_KEY = ("postRotateApiKey",)
# Paths of stored things, and of requests to models; all others are management.
STORED = r"^/v1/(responses/\{|conversations)"
MODELS = r"^/(model|v1|v1beta|v2)/(?!responses/\{|conversations|files|batches|messages/batches|key|credits|generation)"
# They end what the others need: the session, the organization, the project.
ENDS = ("deleteOneProject", "deleteOneOrganization", "postSignOut")
CONFIGURATION = """
base-url = "{url}"
seed = 1
continue-on-failure = true
request-timeout = 30
{parameters}
[checks]
positive_data_acceptance.expected-statuses = [{taken}]
[auth.openapi]
session.bearer = "{session}"
apiKey.bearer = "{key}"
xApiKey.api_key = "{key}"
xGoogApiKey.api_key = "{key}"
keyInQuery.api_key = "{key}"
metricsToken.bearer = "none"
[[operations]]
include-operation-id = [{more}]
checks.positive_data_acceptance.expected-statuses = [{taken}, 400, 405, 413, 415]
[[operations]]
include-operation-id = [{googles}]
checks.negative_data_rejection.enabled = false
[[operations]]
# A header that is empty is none.
include-operation-id = ["createCompletion"]
checks.negative_data_rejection.enabled = false
[[operations]]
# The protocol has 405 for who wants a stream and names no event.
include-operation-id = ["resumeMcpStream", "resumeMcpServerStream"]
checks.missing_required_header.enabled = false
[[operations]]
# One address that asks too often is told so before it is looked at who it is.
include-path-regex = "^/auth/"
checks.missing_required_header.enabled = false
checks.ignored_auth.enabled = false
"""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A product of two workers, to be treated badly."""
    product = Product(tmp_path_factory.mktemp("product home"), WEB_WORKERS="2", UPSTREAM_FIRST_BYTE_TIMEOUT="3")
    yield product
    assert product.stop() == 0


def document_of(product: Product, folder: Path) -> Path:
    """Return the document with the name of a model that exists, where one is asked for, and without its examples: they
    have a test of their own, and make many more cases of each operation."""
    document = requests.get(f"{product.url}/openapi.json", timeout=60).json()
    for operations in document["paths"].values():
        for operation in operations.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                content.pop("example", None)
    document["components"]["schemas"]["ModelName"] = {"const": "sandbox/echo"}
    path = folder / "openapi.json"
    path.write_text(json.dumps(document))
    return path


def run(product: Product, folder: Path, parameters: dict[str, str], *options: str, session: str = "") -> None:
    """Let schemathesis ask, in the demo's session unless another is named; what it finds is in the failure."""
    quoted = (f'"{name}" = "{value}"' for name, value in parameters.items())
    (folder / "schemathesis.toml").write_text(
        CONFIGURATION.format(
            url=product.url,
            parameters="\n".join(["[parameters]", *quoted]),
            taken=TAKEN,
            session=session or product.demo["sessionToken"],
            key=product.demo["apiKey"],
            googles=", ".join(f'"{name}"' for name in GOOGLES),
            more=", ".join(f'"{name}"' for name in MORE_THAN_A_SCHEMA),
        )
    )
    program = Path(sys.executable).with_name("schemathesis")
    done = subprocess.run(
        [
            *(program, "run", document_of(product, folder), "--url", product.url),
            *("--no-color", "--max-examples", EXAMPLES, *options),
        ],
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": str(CHECK)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]


def create(product: Product, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create something as the owner of the demo organization."""
    headers = {"Authorization": f"Bearer {product.demo['sessionToken']}"}
    response = requests.post(product.url + path, json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    created: dict[str, Any] = response.json()
    return created


def new_project(product: Product, organization: str, name: str) -> str:
    """Create a project and return its id."""
    return str(create(product, "/projects", {"name": name, "organizationId": organization})["project"]["id"])


@pytest.fixture(scope="module")
def things(product: Product) -> dict[str, str]:
    """Things that exist, by the parameter that names them; the demo's own key must outlive the run."""
    organization = product.demo["organizationId"]
    project = new_project(product, organization, "Asked about")
    key = create(product, "/keys/api", {"description": "asked about", "projectId": project})["apiKey"]["id"]
    return {"path.organizationId": organization, "path.projectId": project, "path.keyId": key}


@pytest.fixture(scope="module")
def conversation(product: Product) -> str:
    """A conversation, of an organization that keeps what its models are asked."""
    organization = f"{product.url}/organization/{product.demo['organizationId']}"
    session = {"Authorization": f"Bearer {product.demo['sessionToken']}"}
    kept = requests.patch(organization, json={"retentionLevel": "retain"}, headers=session, timeout=60)
    assert kept.status_code == 200, kept.text
    key = {"Authorization": f"Bearer {product.demo['apiKey']}"}

    made = requests.post(f"{product.url}/v1/conversations", json={}, headers=key, timeout=60)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


@pytest.fixture(scope="module", autouse=True)
def doomed(product: Product) -> dict[str, str]:
    """Things that are there to be ended; made before anything else, for there can be but so many."""
    organization = create(product, "/organization", {"name": "To be ended"})["organization"]["id"]
    project = new_project(product, product.demo["organizationId"], "To be ended")
    return {"path.organizationId": organization, "path.projectId": project}


# Two and a half minutes on two cores; the examples of each operation have a test of their own.
@pytest.mark.long
@pytest.mark.timeout(400)
def test_management_does_what_the_document_says(product: Product, things: dict[str, str], tmp_path: Path) -> None:
    left_out = (option for name in (*ENDS, *OFF, *TAKES_ITS_KEY) for option in ("--exclude-operation-id", name))
    others = ["--exclude-path-regex", f"{MODELS}|{STORED}", *left_out]
    run(product, tmp_path, things, "--phases", "coverage,fuzzing", "--workers", "2", *others)


@pytest.mark.long
def test_models_are_asked_as_the_document_says(product: Product, conversation: str, tmp_path: Path) -> None:
    more = ("--max-examples", str(3 * int(EXAMPLES)))
    names = {"path.modelId": "sandbox/echo", "path.name": "sandbox/echo:generateContent"}
    run(product, tmp_path, names, "--phases", "fuzzing", "--include-path-regex", MODELS, *more)


@pytest.mark.long
def test_stored_responses_are_asked_about_as_the_document_says(
    product: Product, conversation: str, tmp_path: Path
) -> None:
    names = {"path.conversationId": conversation}
    run(product, tmp_path, names, "--phases", "fuzzing", "--include-path-regex", STORED)


@pytest.mark.long
@pytest.mark.parametrize("name", ENDS)
def test_what_ends_things_does_so_as_the_document_says(
    product: Product, doomed: dict[str, str], tmp_path: Path, name: str
) -> None:
    # In a session of its own: the demo's must outlive the one that is signed out.
    owner = product.demo["owner"]
    session = create(product, "/auth/sign-in/email", {"email": owner["email"], "password": owner["password"]})["token"]
    run(product, tmp_path, doomed, "--phases", "coverage", "--include-operation-id", name, session=session)
