"""What the HTTP side needs of a target's tokenizer. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from dcoco_core.target.chat_template import ChatTemplate
from dcoco_core.target.tokenizer import TargetTokenizer


@dataclass(frozen=True, slots=True)
class ApiTokenizer:
    """A tokenizer with the ids that end a reply, and a chat template if the model is a chat model.

    Attributes:
        raw: text to ids and back, token by token.
        vocab_size: the model's; prompts may hold ids below it.
    """

    raw: Tokenizer
    eos_token_ids: frozenset[int]
    vocab_size: int
    template: ChatTemplate | None

    @classmethod
    def load(cls, folder: Path) -> ApiTokenizer:
        """Reads a target's folder. Raises CheckpointError."""
        target = TargetTokenizer(folder)
        raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
        raw.no_truncation()
        raw.no_padding()
        template = target.chat_template if target.has_chat_template else None
        return cls(raw, target.eos_token_ids, target.vocab_size, template)
