"""A program for LlamaIndex: an answer, a stream, a call of a function with its result, a structured answer."""

import json
import os

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


class Person(BaseModel):
    name: str


def look(city: str) -> str:
    """Look at the weather."""
    return f"{city} is fine"


model = OpenAILike(
    model=os.environ["MODEL"],
    api_base=os.environ["GATEWAY_URL"] + "/v1",
    api_key=os.environ["GATEWAY_KEY"],
    is_chat_model=True,
    is_function_calling_model=True,
    should_use_structured_outputs=True,
)
question = ChatMessage(role=MessageRole.USER, content='look({"city": "Rome"})')
tool = FunctionTool.from_defaults(look)
asked = model.chat_with_tools([tool], chat_history=[question])
(call,) = model.get_tool_calls_from_response(asked)
result = ChatMessage(
    role=MessageRole.TOOL, content=look(**call.tool_kwargs), additional_kwargs={"tool_call_id": call.tool_id}
)
answered = model.chat([question, asked.message, result], tools=[tool.metadata.to_openai_tool()])
print(
    json.dumps(
        {
            "text": model.complete("hello").text,
            "streamed": "".join(chunk.delta or "" for chunk in model.stream_complete("one two")),
            "call": [call.tool_name, call.tool_kwargs],
            "answered": model.chat(
                [question, asked.message, result], tools=[tool.metadata.to_openai_tool()]
            ).message.content,
            "person": model.as_structured_llm(Person).complete("who is 'Ada'?").raw.name,
        }
    )
)
