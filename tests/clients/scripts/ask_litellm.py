"""A program for LiteLLM, in one of its providers' formats: an answer, a stream, a call of a tool, a form."""

import json
import os

import litellm
from pydantic import BaseModel

litellm.suppress_debug_info = True


class Person(BaseModel):
    """The schema of the answer."""

    name: str


said = {
    "model": os.environ["FORMAT"] + "/" + os.environ["MODEL"],
    "api_base": os.environ["BASE_URL"],
    "api_key": os.environ["GATEWAY_KEY"],
    "max_tokens": 4000,
}
look = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def asked(*messages, **fields):
    """Return an answer to messages."""
    return litellm.completion(messages=list(messages), **said, **fields)


def user(text):
    """Return a message of the user."""
    return {"role": "user", "content": text}


plain = asked(user("hello"))
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in asked(user("one two"), stream=True))
question = user('look({"city": "Rome"})')
first = asked(question, tools=[look]).choices[0].message
(call,) = first.tool_calls
result = {"role": "tool", "tool_call_id": call.id, "name": "look", "content": "Rome is fine"}
person = asked(user("who is 'Ada'?"), response_format=Person).choices[0].message.content
print(
    json.dumps(
        {
            "text": plain.choices[0].message.content,
            "tokens": plain.usage.total_tokens > 0,
            "streamed": streamed,
            "call": [call.function.name, json.loads(call.function.arguments)],
            "answered": asked(question, first.model_dump(), result, tools=[look]).choices[0].message.content,
            "person": json.loads(person)["name"],
        }
    )
)
