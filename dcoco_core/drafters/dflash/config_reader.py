"""Reads the published config.json, whose keys moved between releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dcoco_core.drafters.dflash.patterns import AttentionPattern
from dcoco_core.errors import CheckpointError


class ConfigReader:
    """Typed look-ups that name the file and the key when a value is missing or of a wrong kind."""

    def __init__(self, data: Mapping[str, Any], source: str) -> None:
        own = data.get("dflash_config") or {}
        if not isinstance(own, Mapping):
            raise CheckpointError(f"{source}: dflash_config must be an object")
        self._values = {**data, **own}
        self._source = source

    def _typed(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            if default is ...:
                raise CheckpointError(f"{self._source}: {key} is missing")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise CheckpointError(f"{self._source}: {key} has the wrong type: {value!r}")
        return value

    def integer(self, key: str, default: Any = ...) -> int:
        """A required integer, or one with a default."""
        return int(self._typed(key, int, default))

    def optional_integer(self, key: str) -> int | None:
        """An integer or None."""
        value = self._typed(key, int, None)
        return None if value is None else int(value)

    def number(self, key: str, default: Any = ...) -> float:
        """A float; integers count."""
        return float(self._typed(key, (int, float), default))

    def optional_number(self, key: str) -> float | None:
        """A float or None."""
        value = self._typed(key, (int, float), None)
        return None if value is None else float(value)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        return bool(self._typed(key, bool, default))

    def text(self, key: str) -> str | None:
        """A string or None."""
        value = self._typed(key, str, None)
        return None if value is None else str(value)

    def rope_theta(self) -> float:
        """The rotation's base; CheckpointError for scaled rotations, which are not supported."""
        parameters = self._typed("rope_parameters", dict, {}) or {}
        scaling = self._typed("rope_scaling", dict, {}) or {}
        kind = parameters.get("rope_type") or scaling.get("rope_type") or scaling.get("type")
        if kind not in (None, "default"):
            raise CheckpointError(
                f"{self._source}: rope type {kind!r} is not supported (default is)"
            )
        return float(parameters.get("rope_theta") or self.number("rope_theta", 1e6))

    def layer_ids(self) -> tuple[int, ...]:
        """The tapped blocks; without the key, spread as the published code spreads them."""
        ids = self._typed("target_layer_ids", list, None)
        if ids is None:
            return spread_layer_ids(self.integer("num_target_layers"), 5)
        if not all(isinstance(i, int) for i in ids):
            raise CheckpointError(f"{self._source}: target_layer_ids must be integers: {ids!r}")
        return tuple(ids)

    def attention(self) -> tuple[AttentionPattern, ...]:
        """The pattern of every layer; empty when all of them see everything."""
        kinds = self._typed("layer_types", list, None)
        if kinds is None:
            return ()
        if len(kinds) != self.integer("num_hidden_layers"):
            raise CheckpointError(f"{self._source}: layer_types must name every layer: {kinds!r}")
        window = self.optional_integer("swa_window_size") or self.optional_integer("sliding_window")
        causal = self._values.get("is_causal", self._values.get("causal"))
        patterns = []
        for kind in kinds:
            is_sliding = kind == "sliding_attention"
            if is_sliding and window is None:
                raise CheckpointError(f"{self._source}: sliding layers need sliding_window")
            is_causal = is_sliding if causal is None else bool(causal)
            patterns.append(AttentionPattern(is_causal, window if is_sliding else None))
        is_plain = all(pattern == AttentionPattern() for pattern in patterns)
        return () if is_plain else tuple(patterns)


def spread_layer_ids(num_target_layers: int, num_taps: int) -> tuple[int, ...]:
    """Blocks 1 to num_target_layers - 3 in even steps (the published default)."""
    if num_taps == 1:
        return (num_target_layers // 2,)
    span = num_target_layers - 4
    return tuple(round(1 + i * span / (num_taps - 1)) for i in range(num_taps))
