"""A language model whose every answer is written down here, as a file that llama-server loads.

The weights are made, not trained. Attention and the feed-forward layer are zero, so what the last layer sees
is the last token alone; each token has a dimension of its own, and the output matrix is a table that says
which token follows which. The chat template looks at the conversation and ends the prompt with the token at
which one of `ANSWERS` starts. So a real server, with its own tokenizer, sampler, parser of tool calls and
HTTP interface, gives known answers at any usual temperature.

usage: python -m tests.llama.scripted FILE
"""

import json
import pathlib
import sys

import gguf
import numpy

COMMAND = "printf 'sum of 20 and 22: %s' $((20 + 22))"
"""What the model wants the shell to do."""
SHELL_CALL = {"name": "shell", "arguments": {"command": COMMAND}}
NUMBERS = tuple(f" {number}" for number in range(1, 51))
RESULT = "written as an action"

# A piece is one token, and every token has another text. The answer to a user's message is the one whose name
# stands in it, PLAIN where there is none; that to a tool's result is FOUND.
ANSWERS: dict[str, tuple[str, ...]] = {
    "PLAIN": ("Harbour", " lights", ",", " at", " last", "."),
    "FOUND": ("The", " shell", " has", " counted", " well."),
    "SHELL": ("<tool_call>", "\n", json.dumps(SHELL_CALL) + "\n", "</tool_call>"),
    "COUNT": NUMBERS,
    "FOREVER": (" tick", " tock"),
    # The JSON of the text protocol, for models without tool calls of their own.
    "ACTION": ('{"action": "complete",', ' "data":', f' {{"result": "{RESULT}"}}', "}"),
}
TEXTS = {name: "".join(pieces) for name, pieces in ANSWERS.items()}
LOOPING = {"FOREVER"}
"""Answers that begin again at their end: only the most tokens of an answer, or who asked, ends them."""

CONTEXT = 1 << 17  # tokens that the file says it was trained for; the server is told to take fewer

# Of the form that servers know from many models: calls and their results are JSON in tags of their own.
TEMPLATE = """
{%- if tools -%}
<|im_start|>system
# Tools
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
Call one with a JSON object in tags:
<tool_call>
{"name": <its name>, "arguments": <its arguments>}
</tool_call><|im_end|>
{% endif -%}
{%- set last = namespace(words='', result=false) -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{%- set last.result = true -%}
<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role == 'assistant' -%}
<|im_start|>assistant
{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% else -%}
{%- if message.role == 'user' -%}
{%- set last.words = message.content | string -%}
{%- set last.result = false -%}
{%- endif -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{%- if last.result -%}<|FOUND|>
{%- elif tools and 'SHELL' in last.words -%}<|SHELL|>
{%- elif 'COUNT' in last.words -%}<|COUNT|>
{%- elif 'FOREVER' in last.words -%}<|FOREVER|>
{%- elif 'ACTION' in last.words -%}<|ACTION|>
{%- else -%}<|PLAIN|>
{%- endif -%}
{%- endif -%}
"""

_STOP = "<|im_end|>"
_CERTAIN = 4.0  # times the root of the width: far above what any temperature could overcome
_HEAD = 32  # numbers of the one head of attention


class _Vocabulary:
    """Tokens by their text, their kinds, and which follows which."""

    def __init__(self) -> None:
        self.texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), _STOP]
        kind = gguf.TokenType
        self.kinds = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL, *[kind.BYTE] * 256, kind.CONTROL]
        self.follows: dict[int, int] = {}

    def add(self, text: str, kind: gguf.TokenType) -> int:
        """A new token."""
        assert text not in self.texts, f"two tokens {text!r}: the tokenizer takes only one"
        self.texts.append(text)
        self.kinds.append(kind)
        return len(self.texts) - 1

    def answer(self, name: str, pieces: tuple[str, ...]) -> None:
        """The tokens of an answer, and the one at which it starts."""
        start = self.add(f"<|{name}|>", gguf.TokenType.CONTROL)
        tokens = [self.add(piece, gguf.TokenType.USER_DEFINED) for piece in pieces]
        after = tokens[0] if name in LOOPING else self.texts.index(_STOP)
        self.follows |= dict(zip([start, *tokens], [*tokens, after], strict=True))


def write(path: pathlib.Path) -> None:
    """Write the model."""
    words = _Vocabulary()
    for name, pieces in ANSWERS.items():
        words.answer(name, pieces)
    width = -(-len(words.texts) // _HEAD) * _HEAD
    writer = gguf.GGUFWriter(path, "llama")
    _shape(writer, width)
    _tokens(writer, words)
    for name, weights in _weights(words, width).items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _shape(writer: gguf.GGUFWriter, width: int) -> None:
    writer.add_name("scripted")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_HEAD)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _tokens(writer: gguf.GGUFWriter, words: _Vocabulary) -> None:
    writer.add_vocab_size(len(words.texts))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text.encode() for text in words.texts])
    writer.add_token_scores([0.0] * len(words.texts))
    writer.add_token_types(words.kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(words.texts.index(_STOP))
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)


def _weights(words: _Vocabulary, width: int) -> dict[str, numpy.ndarray]:
    count, stop = len(words.texts), words.texts.index(_STOP)
    single = numpy.float32
    table = numpy.zeros((count, width), single)
    for token in range(count):
        table[words.follows.get(token, stop), token] = _CERTAIN
    ones, layer = numpy.ones(width, single), "blk.0."
    flat, tall = numpy.zeros((_HEAD, width), single), numpy.zeros((width, _HEAD), single)
    return {
        "token_embd.weight": numpy.eye(count, width, dtype=single),
        "output.weight": table,
        "output_norm.weight": ones,
        f"{layer}attn_norm.weight": ones,
        f"{layer}attn_q.weight": flat,
        f"{layer}attn_k.weight": flat,
        f"{layer}attn_v.weight": flat,
        f"{layer}attn_output.weight": tall,
        f"{layer}ffn_norm.weight": ones,
        f"{layer}ffn_gate.weight": flat,
        f"{layer}ffn_up.weight": flat,
        f"{layer}ffn_down.weight": tall,
    }


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
