"""How the evaluation asks: decoding rule, and with or without reasoning step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dcoco_core.errors import ConfigError
from dcoco_core.registry import unknown_name
from dcoco_core.types import Rule

_STEP_BY_STEP = "Think step by step, and write down every step before the answer."
STEP_BY_STEP_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to ask every set.

    Attributes:
        rule: how tokens are decided.
        temperature: of the target; no other filter applies.
        instruction: is added to the last message. A model without a thinking switch reasons no
            other way, and the name says that this is an instruction.
        min_tokens_cap: answers may be at least this long, whatever cap was asked for.
    """

    name: str
    rule: Rule
    temperature: float
    instruction: str = ""
    min_tokens_cap: int = 0

    @property
    def is_replayed(self) -> bool:
        """Whether one recorded answer serves every corrector."""
        return self.rule is not Rule.REJECTION

    def messages(self, messages: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
        """The conversation as this setting asks it."""
        if not self.instruction:
            return list(messages)
        *before, last = messages
        return [*before, {**last, "content": f"{last['content']}\n\n{self.instruction}"}]


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("greedy", Rule.GREEDY, 0.0),
        Setting("rejection-t1", Rule.REJECTION, 1.0),
        Setting("coupled-t1", Rule.COUPLED, 1.0),
        Setting("greedy-step-by-step", Rule.GREEDY, 0.0, _STEP_BY_STEP, STEP_BY_STEP_TOKENS),
        Setting(
            "rejection-t1-step-by-step", Rule.REJECTION, 1.0, _STEP_BY_STEP, STEP_BY_STEP_TOKENS
        ),
        Setting("coupled-t1-step-by-step", Rule.COUPLED, 1.0, _STEP_BY_STEP, STEP_BY_STEP_TOKENS),
    )
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
