"""A llama.cpp server with a tiny model of random weights, as a program of its own: `tiny_llama.py FILE PORT`.

It runs in the environment of `script/local-model`, which has `gguf` and `xllamacpp`; the product needs neither.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

# Sizes of the model: two layers of 64, with 2,048 tokens of context for each of two slots.
WIDTH, HEADS, LAYERS, INNER, CONTEXT, SLOTS = 64, 4, 2, 128, 2_048, 2
WORDS = ("the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are", "hello", "red")
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write_model(path: str) -> None:
    """Write a llama with random weights and a vocabulary of bytes, letters and some words."""
    import gguf  # type: ignore[import-not-found,unused-ignore]  # in the environment of script/local-model alone
    import numpy as np

    random = np.random.default_rng(7)
    kinds = gguf.TokenType
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    normal = [*(f"\u2581{word}" for word in WORDS), *map(chr, range(97, 123)), "\u2581"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny-llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens) + len(normal))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([one.encode() for one in (*tokens, *normal)])
    writer.add_token_scores([0.0] * len(tokens) + [-float(at) for at in range(len(normal))])
    writer.add_token_types([*types, *[kinds.NORMAL] * len(normal)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)

    def weights(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", (random.standard_normal(shape) * 0.05).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))

    weights("token_embd", len(tokens) + len(normal), WIDTH)
    weights("output", len(tokens) + len(normal), WIDTH)
    norm("output_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for name in ("attn_norm", "ffn_norm"):
            norm(f"{block}.{name}")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"{block}.{name}", WIDTH, WIDTH)
        weights(f"{block}.ffn_gate", INNER, WIDTH)
        weights(f"{block}.ffn_up", INNER, WIDTH)
        weights(f"{block}.ffn_down", WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def serve(path: str, port: int) -> Any:
    """Return a running server of the model, with its metrics."""
    import xllamacpp  # type: ignore[import-not-found,unused-ignore]  # as above

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {"tiny-llama"}
    params.n_ctx, params.n_parallel = CONTEXT * SLOTS, SLOTS
    params.cpuparams.n_threads = 1
    params.hostnames, params.port = ["127.0.0.1"], port
    params.endpoint_metrics = True
    params.use_jinja = True
    return xllamacpp.Server(params)


if __name__ == "__main__":
    write_model(sys.argv[1])
    server = serve(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write(f"ready {server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()
