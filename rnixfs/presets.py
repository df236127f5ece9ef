"""The drivers of models, and the providers whose addresses are known."""

import msgspec

CLAUDE_CLI = "claude-cli"
CURSOR_CLI = "cursor-cli"
OPENAI_COMPAT = "openai-compat"
ANTHROPIC = "anthropic"
GEMINI = "gemini"
SCRIPT = "script"
DRIVERS = (CLAUDE_CLI, CURSOR_CLI, OPENAI_COMPAT, ANTHROPIC, GEMINI, SCRIPT)


class Preset(msgspec.Struct, frozen=True):
    """What an entry of a known name gets where it leaves fields out."""

    driver: str = OPENAI_COMPAT
    base_url: str = ""
    api_key_env: str = ""


# The addresses are the ones that each project documents for its interface: up to /v1 where it is OpenAI's,
# and without the version for anthropic and gemini, whose drivers add it as the clients of both makers do.
PRESETS = {
    "claude": Preset(CLAUDE_CLI),
    "cursor": Preset(CURSOR_CLI),
    "script": Preset(SCRIPT),
    "anthropic": Preset(ANTHROPIC, "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "gemini": Preset(GEMINI, "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
    "openai": Preset(OPENAI_COMPAT, "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "groq": Preset(OPENAI_COMPAT, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "deepseek": Preset(OPENAI_COMPAT, "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "openrouter": Preset(OPENAI_COMPAT, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ollama": Preset(OPENAI_COMPAT, "http://127.0.0.1:11434/v1"),
    "llamacpp": Preset(OPENAI_COMPAT, "http://127.0.0.1:8080/v1"),
    "vllm": Preset(OPENAI_COMPAT, "http://127.0.0.1:8000/v1"),
    "lmstudio": Preset(OPENAI_COMPAT, "http://127.0.0.1:1234/v1"),
}

LOCAL = ("ollama", "llamacpp", "vllm", "lmstudio")
"""Servers of this machine that are found without configuration, the one asked first in front."""

# Drivers with an address of their own fill it under any name.
_OF_DRIVERS = {ANTHROPIC: PRESETS["anthropic"], GEMINI: PRESETS["gemini"]}


def preset_of(name: str, driver: str) -> Preset:
    """What an entry of this name and driver gets where it leaves fields out."""
    preset = PRESETS.get(name, Preset())
    return preset if preset.driver == driver else _OF_DRIVERS.get(driver, Preset(driver))
