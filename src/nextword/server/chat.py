"""Chat templates: from messages to the text that a language model continues.

A template is one of TEMPLATES or a Jinja file, as Hugging Face's tokenizers have them: it sees `messages` (each with
`role` and `content`), `add_generation_prompt`, `bos_token` and `eos_token`. It is written by who starts the server; the
messages are data, and cannot change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from nextword.core.errors import InvalidSetting, MissingFile, did_you_mean
from nextword.server.security import Refusal

Messages = Sequence[Mapping[str, str]]

PLAIN = """\
{%- for message in messages %}{{ message.role | capitalize }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"""
CHATML = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# name → the template, and the strings at which an answer ends
TEMPLATES = {
    "plain": (PLAIN, ("\nUser:", "\nSystem:")),
    "chatml": (CHATML, ("<|im_end|>",)),
}
MAX_TEMPLATE = 1 << 20  # bytes of a file


@dataclass(frozen=True)
class ChatTemplate:
    source: str
    stop: tuple[str, ...] = ()

    @cached_property
    def _template(self) -> jinja2.Template:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        return environment.from_string(self.source)

    def check(self) -> None:
        """Raise InvalidSetting unless the template is one, and works for a short conversation."""
        try:
            self._template.render(messages=[{"role": "user", "content": "Hello"}], add_generation_prompt=True)
        except jinja2.TemplateError as error:
            raise InvalidSetting(f"--chat: the template does not work: {error}.", key="chat") from None

    def render(self, messages: Messages, begin: str = "", end: str = "") -> str:
        """The text up to where the answer begins."""
        settings = {"add_generation_prompt": True, "bos_token": begin, "eos_token": end}
        try:
            return self._template.render(messages=[dict(message) for message in messages], **settings)
        except jinja2.TemplateError as error:  # templates may raise errors about roles
            raise Refusal(400, f"The chat template refuses these messages: {error}", param="messages") from None


def find_template(name: str) -> ChatTemplate:
    """A template by its name, or from a file."""
    if name in TEMPLATES:
        return ChatTemplate(*TEMPLATES[name])
    path = Path(name)
    if not path.is_file():
        raise MissingFile(
            f"--chat {name}: no such file.{did_you_mean(name, TEMPLATES)} Give a Jinja template, or one of "
            f"{', '.join(TEMPLATES)}.",
            path=path,
        )
    content = path.read_bytes()[: MAX_TEMPLATE + 1]
    try:
        if len(content) > MAX_TEMPLATE:
            raise InvalidSetting(f"--chat {name}: the file has more than {MAX_TEMPLATE >> 20} MB.", key="chat")
        template = ChatTemplate(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidSetting(f"--chat {name}: the file is not UTF-8.", key="chat", value=name) from None
    template.check()
    return template
