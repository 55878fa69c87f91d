"""A program for instructor: a structured answer by a tool's call, by JSON, by a schema, and streamed in parts."""

import json
import os

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Person(BaseModel):
    """The schema of the answer."""

    name: str


model = os.environ["MODEL"]
asked = {"model": model, "messages": [{"role": "user", "content": "what is the 'name'?"}], "max_retries": 0}
sdk = OpenAI(base_url=os.environ["GATEWAY_URL"] + "/v1", api_key=os.environ["GATEWAY_KEY"])
told = {}
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(sdk, mode=mode)
    told[mode.name] = client.chat.completions.create(response_model=Person, **asked).name
client = instructor.from_openai(sdk)
told["streamed"] = list(client.chat.completions.create_partial(response_model=Person, **asked))[-1].name
print(json.dumps(told))
