"""LangChain's model for Google: whole, streamed, a loop of tools with thinking, a structured answer."""

from __future__ import annotations

import json
import os
import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI
from pydantic import BaseModel


class Person(BaseModel):
    """The schema of a structured answer."""

    name: str


@tool
def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"Sun in {city}"


def text_of(message) -> str:
    """Return the words of a message, whatever it consists of."""
    return message.text if isinstance(message.text, str) else message.text()


asked = {
    "model": os.environ["MODEL"],
    "google_api_key": os.environ["GATEWAY_KEY"],
    "base_url": os.environ["GATEWAY_URL"],
    "additional_headers": {"X-No-Fallback": "true"},
    "max_retries": 1,
}
model = ChatGoogleGenerativeAI(**asked)
told = {"text": text_of(model.invoke("hello")), "streamed": "".join(map(text_of, model.stream("one two")))}

thinking = ChatGoogleGenerativeAI(**asked, include_thoughts=True, thinking_budget=2000)
messages = [HumanMessage('why? get_weather({"city": "Rome"})')]
first = thinking.bind_tools([get_weather]).invoke(messages)
(call,) = first.tool_calls
told["call"] = [call["name"], call["args"]]
result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"], name=call["name"])
told["answered"] = text_of(thinking.bind_tools([get_weather]).invoke([*messages, first, result]))
told["person"] = model.with_structured_output(Person, method="json_schema").invoke("who is 'Ada'?").name
told["tokens"] = first.usage_metadata["total_tokens"] > 0
sys.stdout.write(json.dumps(told))
