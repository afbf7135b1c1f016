"""A target's tokenizer: text to ids and back, chats to ids. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from dcoco_core.errors import CheckpointError
from dcoco_core.target.chat_template import ChatTemplate
from dcoco_core.target.folder import read_json

SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class TargetTokenizer:
    """The tokenizer in a target's folder, with what its configs say about special tokens."""

    def __init__(self, folder: Path) -> None:
        """Loads tokenizer.json and reads the configs.

        Raises:
            CheckpointError: a file is missing or damaged, or the vocabulary does not fit the model.
        """
        self._folder = folder
        config = read_json(folder / "config.json")
        read_json(folder / "tokenizer.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the Rust side raises plain Exception
            raise CheckpointError(f"{folder / 'tokenizer.json'} is damaged: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.vocab_size = _model_vocab_size(folder, config)
        largest_id = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        if largest_id >= self.vocab_size:
            raise CheckpointError(
                f"{folder}: the tokenizer has id {largest_id}, the model only {self.vocab_size} ids"
            )
        self.eos_token_ids = _eos_token_ids(folder, config)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to ids, with the special tokens the tokenizer puts around a text if wanted."""
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Ids to text; bytes that are no whole character yet become U+FFFD."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
    ) -> list[int]:
        """A conversation to ids through the model's chat template; see ChatTemplate.render.

        Raises:
            CheckpointError: the model has no chat template.
            RequestError: the template refuses the messages.
        """
        text = self.chat_template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=enable_thinking,
        )
        return self.encode(text, add_special_tokens=False)

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The compiled chat template. Raises CheckpointError if the model has none."""
        source = _chat_template_source(self._folder)
        if source is None:
            raise CheckpointError(
                f"{self._folder} has no chat template: it is no chat model, use completions"
            )
        return ChatTemplate(source, _special_tokens(self._folder))

    @property
    def has_chat_template(self) -> bool:
        """Whether chats can be encoded."""
        return _chat_template_source(self._folder) is not None

    def check_mask_token(self, mask_token_id: int) -> None:
        """Checks that an id can stand for "not drafted yet": in the vocabulary, never in a text.

        Raises:
            CheckpointError: the id is outside the vocabulary, ordinary text, or ends a text.
        """
        if not 0 <= mask_token_id < self.vocab_size:
            raise CheckpointError(
                f"mask token id {mask_token_id} is outside the target's vocabulary "
                f"(0..{self.vocab_size - 1})"
            )
        if mask_token_id in self.eos_token_ids:
            raise CheckpointError(f"mask token id {mask_token_id} is an end-of-text id")
        token = self._tokenizer.id_to_token(mask_token_id)
        added = self._tokenizer.get_added_tokens_decoder().get(mask_token_id)
        if token is not None and (added is None or not added.special):
            raise CheckpointError(
                f"mask token id {mask_token_id} is the ordinary token {token!r}; "
                "use a special or an unused id"
            )
        if token is not None and self.has_chat_template:
            chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
            if mask_token_id in self.encode_chat(chat):
                raise CheckpointError(
                    f"mask token id {mask_token_id} ({token!r}) is part of every chat"
                )


def _model_vocab_size(folder: Path, config: Mapping[str, object]) -> int:
    text_config = config.get("text_config")
    nested = text_config if isinstance(text_config, Mapping) else {}
    vocab_size = config.get("vocab_size", nested.get("vocab_size"))
    if not isinstance(vocab_size, int):
        raise CheckpointError(f"{folder / 'config.json'} has no vocab_size")
    return vocab_size


def _eos_token_ids(folder: Path, config: Mapping[str, object]) -> frozenset[int]:
    """Every id that ends a text: generation_config.json wins over config.json, as in generate."""
    value = config.get("eos_token_id")
    if (folder / "generation_config.json").is_file():
        generation = read_json(folder / "generation_config.json")
        value = generation.get("eos_token_id", value)
    ids = value if isinstance(value, list) else [value]
    return frozenset(token_id for token_id in ids if isinstance(token_id, int))


def _special_tokens(folder: Path) -> dict[str, str]:
    """The texts of the special tokens by role, which a chat template may print."""
    config = read_json(folder / "tokenizer_config.json")
    texts = {}
    for role in SPECIAL_TOKENS:
        value = config.get(role)
        content = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(content, str):
            texts[role] = content
    return texts


def _chat_template_source(folder: Path) -> str | None:
    """chat_template.jinja, or the entry of tokenizer_config.json (one text, or several by name)."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    if not (folder / "tokenizer_config.json").is_file():
        return None
    value = read_json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(value, list):
        by_name = {entry.get("name"): entry.get("template") for entry in value}
        value = by_name.get("default")
    return value if isinstance(value, str) else None
