"""How the evaluation asks: decoding rule, and with or without reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from dcoco_core.errors import ConfigError
from dcoco_core.registry import unknown_name
from dcoco_core.target.tokenizer import TargetTokenizer
from dcoco_core.types import Rule

_INSTRUCTION = "Think step by step, and write down every step before the answer."


class Reasoning(Enum):
    """What makes the target reason; the value ends a setting's name."""

    NONE = ""
    INSTRUCTION = "-step-by-step"
    SWITCH = "-thinking"


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to ask every set. No filter but the temperature applies."""

    rule: Rule
    temperature: float
    reasoning: Reasoning

    @property
    def name(self) -> str:
        """The rule, the temperature where there is one, and how the target reasons."""
        temperature = f"-t{self.temperature:g}" if self.temperature else ""
        return f"{self.rule}{temperature}{self.reasoning.value}"

    @property
    def is_replayed(self) -> bool:
        """Whether one recorded answer serves every corrector."""
        return self.rule is not Rule.REJECTION

    @property
    def is_reasoning(self) -> bool:
        """Whether the target is made to reason, which takes longer answers."""
        return self.reasoning is not Reasoning.NONE

    def encode(
        self, tokenizer: TargetTokenizer, messages: Sequence[Mapping[str, str]]
    ) -> tuple[int, ...]:
        """The conversation as this setting asks it.

        Raises:
            ConfigError: the chat template lacks the switch that the setting is named after.
        """
        has_switch = tokenizer.chat_template.has_thinking_switch
        if self.reasoning is Reasoning.SWITCH and not has_switch:
            raise ConfigError(f"{self.name}: the target's chat template has no enable_thinking")
        if self.reasoning is Reasoning.INSTRUCTION:
            *before, last = messages
            messages = [*before, {**last, "content": f"{last['content']}\n\n{_INSTRUCTION}"}]
        thinks = self.reasoning is Reasoning.SWITCH if has_switch else None
        return tuple(tokenizer.encode_chat(messages, enable_thinking=thinks))


_RULES = ((Rule.GREEDY, 0.0), (Rule.REJECTION, 1.0), (Rule.COUPLED, 1.0))
SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (Setting(*rule, reasoning) for reasoning in Reasoning for rule in _RULES)
}


def settings_named(names: Sequence[str]) -> list[Setting]:
    """The settings of those names.

    Raises:
        ConfigError: there is no such setting; the message lists them.
    """
    for name in names:
        if name not in SETTINGS:
            raise ConfigError(unknown_name("setting", name, SETTINGS))
    return [SETTINGS[name] for name in names]


def usual_settings(tokenizer: TargetTokenizer) -> list[Setting]:
    """Every rule plain, then reasoning: by the target's own switch, or else by an instruction."""
    has_switch = tokenizer.chat_template.has_thinking_switch
    reasons = Reasoning.SWITCH if has_switch else Reasoning.INSTRUCTION
    return [Setting(*rule, reasoning) for reasoning in (Reasoning.NONE, reasons) for rule in _RULES]
