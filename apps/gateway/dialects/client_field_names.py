"""Client field names: what a format's clients call the fields that the canonical language, and OpenAI, name otherwise.

Errors and notes of what was left out speak to a client in its own words. Must never know what a provider takes.
"""

from __future__ import annotations

from typing import Final

# What clients of a format call the fields that the canonical language (and OpenAI's clients) name otherwise.
FIELD_NAMES: Final[dict[str, dict[str, str]]] = {
    "anthropic": {
        "stop": "stop_sequences",
        "user": "metadata.user_id",
        "reasoning": "thinking",
        "reasoning.max_tokens": "thinking.budget_tokens",
        "reasoning_effort": "thinking",
        "effort": "output_config.effort",
        "response_format": "output_config.format",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "web_search": "tools",
    },
    "completions": {
        "messages": "prompt",
        "top_logprobs": "logprobs",
    },
    "google": {
        "max_tokens": "generationConfig.maxOutputTokens",
        "temperature": "generationConfig.temperature",
        "top_p": "generationConfig.topP",
        "top_k": "generationConfig.topK",
        "n": "generationConfig.candidateCount",
        "stop": "generationConfig.stopSequences",
        "seed": "generationConfig.seed",
        "presence_penalty": "generationConfig.presencePenalty",
        "frequency_penalty": "generationConfig.frequencyPenalty",
        "logprobs": "generationConfig.responseLogprobs",
        "top_logprobs": "generationConfig.logprobs",
        "response_format": "generationConfig.responseMimeType",
        "modalities": "generationConfig.responseModalities",
        "image_config": "generationConfig.imageConfig",
        "reasoning": "generationConfig.thinkingConfig",
        "reasoning.max_tokens": "generationConfig.thinkingConfig.thinkingBudget",
        "reasoning_effort": "generationConfig.thinkingConfig.thinkingLevel",
        "service_tier": "serviceTier",
        "tool_choice": "toolConfig",
        "parallel_tool_calls": "toolConfig",
        "web_search": "tools",
        "messages": "contents",
    },
    "responses": {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
        "verbosity": "text.verbosity",
        "logprobs": "include",
        "web_search": "tools",
    },
}
