"""Prompts of our own, and the split that keeps training and evaluation text apart.

The split depends on the prompt's text alone, so it holds for any source, order or filter.
"""

from __future__ import annotations

import hashlib
from itertools import product

_TEMPLATES = (
    "What is {}?",
    "Explain {} to a ten-year-old.",
    "Write a short story about {}.",
    "List five facts about {}.",
    "Write a Python function that has to do with {} and explain it.",
    "Give three pieces of advice to someone who is new to {}.",
    "Summarise the history of {} in one paragraph.",
    "What are the advantages and disadvantages of {}?",
    "Write an email that invites a friend to an evening about {}.",
    "A class of 24 pupils studies {} for 3 hours a week. How many pupil-hours are that in 6 weeks?",
)
_TOPICS = (
    "sailing",
    "the water cycle",
    "binary search",
    "bread baking",
    "volcanoes",
    "chess",
    "electric cars",
    "photosynthesis",
    "the Roman Empire",
    "bird migration",
    "prime numbers",
    "jazz music",
    "bridges",
    "the human heart",
    "coffee",
    "maps",
)


def is_evaluation(prompt: str) -> bool:
    """Whether a prompt belongs to evaluation (a quarter of all) and must stay out of training."""
    return int(hashlib.sha256(prompt.strip().encode()).hexdigest()[:8], 16) % 4 == 0


def own_prompts(*, evaluation: bool) -> list[str]:
    """Our templated prompts on one side of the split, kinds and topics mixed, in a fixed order."""
    prompts = [template.format(topic) for topic, template in product(_TOPICS, _TEMPLATES)]
    chosen = [prompt for prompt in prompts if is_evaluation(prompt) == evaluation]
    return sorted(chosen, key=lambda prompt: hashlib.sha256(prompt.encode()).hexdigest())
