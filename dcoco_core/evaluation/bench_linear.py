"""`python -m dcoco_core.evaluation.bench_linear`: ways to multiply few rows by SmolLM2's weights.

For each row count, the time of all products of one forward (30 blocks and the head) by each way.
Every product reads another copy of its weight, so that the weight comes from memory as it does in
a forward. The ways take turns and the least of several repeats counts, since other work on the
machine only adds. The table in `dcoco_core.target.linear` comes from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from dcoco_core.target.linear import PACKED_FOR_ROWS, Linear

# (out, in) and how often a forward has it: fused qkv, output, fused gate and up, down, head.
_SHAPES = {(960, 576): 30, (576, 576): 30, (3072, 576): 30, (576, 1536): 30, (49_152, 576): 1}
_COPIES_BYTES = 100e6
_ROWS = (1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 48, 64, 128, 256)

_Way = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # x, weight, packed
_WAYS: dict[str, _Way] = {
    "x @ weight.T": lambda x, weight, _: x @ weight.t(),
    "weight @ x.T": lambda x, weight, _: (weight @ x.t()).t(),
    "weight @ x.T, doubled": lambda x, weight, _: (weight @ x.repeat(2, 1).t()).t()[: len(x)],
    "packed": lambda x, _, packed: torch.ops.mkldnn._linear_pointwise(
        x, packed, None, "none", [], ""
    ),
}


def main(
    threads: Annotated[int, typer.Option(help="CPU threads")] = 1,
    repeats: Annotated[int, typer.Option(help="repeats per way and row count")] = 5,
) -> None:
    """Prints milliseconds by way and row count, and what `Linear` takes."""
    torch.set_num_threads(threads)
    totals: dict[tuple[str, int], float] = {}
    with torch.inference_mode():
        for (outputs, inputs), count in _SHAPES.items():
            num_copies = max(1, int(_COPIES_BYTES / (outputs * inputs * 4)))
            layers = [Linear(torch.randn(outputs, inputs)) for _ in range(num_copies)]
            packed = [
                torch.ops.mkldnn._reorder_linear_weight(layer.weight, PACKED_FOR_ROWS)
                for layer in layers
            ]
            for num_rows in _ROWS:
                x = torch.randn(num_rows, inputs)
                for name, milliseconds in _measure(layers, packed, x, repeats).items():
                    key = (name, num_rows)
                    totals[key] = totals.get(key, 0.0) + count * milliseconds
    table = Table("rows", *map(str, _ROWS), title=f"milliseconds a forward, {threads} threads")
    for name in (*_WAYS, "Linear"):
        table.add_row(name, *(f"{totals[name, num_rows]:.0f}" for num_rows in _ROWS))
    Console(width=150).print(table)


def _measure(
    layers: list[Linear], packed: list[torch.Tensor], x: torch.Tensor, repeats: int
) -> dict[str, float]:
    """Milliseconds a product, by way."""
    least = dict.fromkeys((*_WAYS, "Linear"), float("inf"))
    for _ in range(repeats):
        for name in least:
            start = time.perf_counter()
            if name == "Linear":
                for layer in layers:
                    layer(x)
            else:
                for layer, reordered in zip(layers, packed, strict=True):
                    _WAYS[name](x, layer.weight, reordered)
            spent = (time.perf_counter() - start) * 1e3 / len(layers)
            least[name] = min(least[name], spent)
    return least


if __name__ == "__main__":
    typer.run(main)
