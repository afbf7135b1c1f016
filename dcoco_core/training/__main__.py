"""`python -m dcoco_core.training`: record a target's answers, then train on them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from dcoco_core.errors import DcocoError
from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target
from dcoco_core.training.corrector_command import corrector_command

app = typer.Typer(help="Train drafters and correctors.", no_args_is_help=True, add_completion=False)
Target = Annotated[str, typer.Option(help="target: folder, GGUF file, hub id or packaged name")]
TapIds = Annotated[
    str | None, typer.Option(help="tapped blocks of the target; five of them by default")
]
Dtype = Annotated[str, typer.Option(help="bfloat16 or float32")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")]


_NUM_TAPS = 5


app.command(name="corrector")(corrector_command)


@app.command()
def generate(
    out: Annotated[Path, typer.Option(help="folder for the shards; what it holds is kept")],
    target: Target = DEFAULT_TARGET,
    sources: Annotated[str, typer.Option(help="prompt sources, see training/prompts.py")] = "own",
    prompts_per_source: Annotated[int, typer.Option(help="prompts of each source")] = 2000,
    max_tokens: Annotated[int, typer.Option(help="longest answer")] = 176,
    rows: Annotated[int, typer.Option(help="sequences decoded together")] = 64,
    minutes: Annotated[float | None, typer.Option(help="end after so long")] = None,
    target_layer_ids: TapIds = None,
    dtype: Dtype = "bfloat16",
    device: Device = "auto",
) -> None:
    """Let the target answer training prompts and record what is learned from; resumable."""
    from dcoco_core.provenance import write_run
    from dcoco_core.target.loading import load_target
    from dcoco_core.target.tokenizer import TargetTokenizer
    from dcoco_core.training.generate import GenerateSettings, generate, questions, unanswered
    from dcoco_core.training.processes import resolve_single_device
    from dcoco_core.training.progress import ProgressDisplay
    from dcoco_core.training.prompts import choose_prompts

    where = str(resolve_single_device(device, "generate"))
    folder = resolve_target(target)
    tokenizer = TargetTokenizer(folder)
    settings = GenerateSettings(max_tokens=max_tokens, num_rows=rows)
    chosen = choose_prompts(sources.split(","), prompts_per_source)
    typer.echo(chosen.summary)
    todo = questions(chosen.prompts, tokenizer, settings)
    facts = {"sources": sources, "num_prompts": len(todo), "dtype": dtype, "device": where}
    write_run(out, facts)
    todo = unanswered(todo, out)
    model = load_target(folder, dtype=dtype, device=where)
    layer_ids = _layer_ids(target_layer_ids, model.spec.num_layers)
    made = generate(model, todo, tokenizer.eos_token_ids, layer_ids, out, settings)
    began = time.monotonic()
    with ProgressDisplay("answering", len(todo), "prompts") as display:
        display.update(0)
        for num_answers, num_tokens in made:
            spent = time.monotonic() - began
            display.update(num_answers, f"{num_tokens / spent:.0f} tokens a second")
            if minutes is not None and spent > 60 * minutes:
                break


@app.command()
def prepare(
    answers: Annotated[Path, typer.Option(help="jsonl or jsonl.gz, made elsewhere")],
    out: Annotated[Path, typer.Option(help="folder for the shards; what it holds is kept")],
    target: Target = DEFAULT_TARGET,
    target_layer_ids: TapIds = None,
    dtype: Dtype = "bfloat16",
    device: Device = "auto",
) -> None:
    """Run the target over the answers and record taps, states and likely tokens."""
    from dcoco_core.provenance import write_run
    from dcoco_core.target.loading import load_target
    from dcoco_core.training.answers import read_answers
    from dcoco_core.training.prepare import record_answers
    from dcoco_core.training.processes import resolve_single_device
    from dcoco_core.training.progress import ProgressDisplay

    where = str(resolve_single_device(device, "prepare"))
    records = list(read_answers(answers))
    model = load_target(resolve_target(target), dtype=dtype, device=where)
    layer_ids = _layer_ids(target_layer_ids, model.spec.num_layers)
    num_tokens = 0
    total = sum(len(record.token_ids) for record in records)
    with ProgressDisplay("recording", total, "tokens") as display:
        display.update(0)
        for more in record_answers(model, records, layer_ids, out):
            num_tokens += more
            display.update(num_tokens)
    facts = {"answers": str(answers), "dtype": dtype, "device": where, "num_tokens": num_tokens}
    write_run(out, facts)
    print(f"recorded {num_tokens:,} tokens of {len(records):,} answers in {out}")


@app.command()
def drafter(
    shards: Annotated[Path, typer.Option(help="folder from `generate`")],
    out: Annotated[Path, typer.Option(help="the run's folder; an unfinished run there goes on")],
    target: Target = DEFAULT_TARGET,
    minutes: Annotated[
        float | None, typer.Option(help="training time, resumptions included")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="instead of --minutes")] = None,
    initial: Annotated[
        Path | None, typer.Option(help="checkpoint to begin with; the target's layers by default")
    ] = None,
    layers: int = 2,
    intermediate_size: int = 1024,
    block_size: int = 8,
    mask_token_id: int = 16,
    draft_vocab_size: int = 8192,
    shift_label: Annotated[bool, typer.Option(help="the anchor's row predicts")] = True,
    learning_rate: float = 2e-3,
    gamma: Annotated[float, typer.Option(help="loss weight exp(-k / gamma)")] = 4.0,
    block_lengths: Annotated[
        str, typer.Option(help="proposals per block, one drawn per step")
    ] = "4,4,7",
    anchors: Annotated[int, typer.Option(help="blocks per sequence and step")] = 32,
    sequences: Annotated[int, typer.Option(help="sequences per step")] = 4,
    target_temperature: float = 0.8,
    label_share: float = 0.3,
    copy_weight: Annotated[float, typer.Option(help="see training/copy_loss.py")] = 0.1,
    seed: int = 0,
    device: Device = "auto",
) -> None:
    """Train a DFlash drafter; --minutes sets when it ends and how the learning rate falls.

    Under `accelerate launch` every process takes its own batches: a step learns from as many.
    """
    from dcoco_core.training.drafter import Recipe, train
    from dcoco_core.training.drafter_report import RunReport
    from dcoco_core.training.drafter_run import Shape, start_run
    from dcoco_core.training.processes import start_processes
    from dcoco_core.training.progress import ProgressDisplay
    from dcoco_core.training.shards import ShardReader

    recipe = Recipe(
        minutes=minutes,
        steps=steps,
        learning_rate=learning_rate,
        gamma=gamma,
        block_lengths=tuple(int(length) for length in block_lengths.split(",")),
        anchors_per_sequence=anchors,
        sequences_per_step=sequences,
        target_temperature=target_temperature,
        label_share=label_share,
        copy_weight=copy_weight,
        seed=seed,
    )
    shape = Shape(
        layers, intermediate_size, block_size, mask_token_id, draft_vocab_size, shift_label
    )
    with start_processes(device) as processes:
        trainer = start_run(resolve_target(target), shape, recipe, shards, out, initial, processes)
        steps_done = train(trainer, ShardReader(shards, "heldout"), RunReport(out, trainer))
        progress, before_s = trainer.progress, trainer.progress.elapsed_s
        with ProgressDisplay("training", 1.0, "", is_shown=processes.rank == 0) as display:
            display.update(recipe.spent(progress))
            for spent, loss in steps_done:
                rate = trainer.num_tokens / max(1e-6, progress.elapsed_s - before_s)
                note = f"step {progress.step}, {rate:,.0f} tokens a second, loss {loss:.3f}"
                display.update(spent, note)


@app.command()
def campaign(
    config: Annotated[Path, typer.Argument(help="a YAML file, see configs/training")],
    minutes: Annotated[float | None, typer.Option(help="in place of the file's")] = None,
    install: Annotated[
        Path | None, typer.Option(help="weights folder to replace if the new ones are better")
    ] = None,
) -> None:
    """Make text, train the drafter and every corrector, all within a budget; resumable."""
    from dcoco_core.training.campaign import Campaign, install_if_better

    plan = Campaign.load(config)
    if minutes is not None:
        plan = plan.model_copy(update={"minutes": minutes})
    plan.run()
    typer.echo(f"weights of {plan.prefix} are in {plan.weights}")
    if install is not None:
        judge = "dcoco" if "dcoco" in plan.correctors else plan.correctors[0]
        is_better = install_if_better(plan, install, judge)
        typer.echo(f"{install}: {'replaced' if is_better else 'left as it is'}")


def _layer_ids(named: str | None, num_layers: int) -> tuple[int, ...]:
    """The named blocks, or as many as there are up to five, spread as published."""
    from dcoco_core.drafters.dflash.config_reader import spread_layer_ids

    if named is None:
        return tuple(dict.fromkeys(spread_layer_ids(num_layers, _NUM_TAPS)))
    return tuple(int(number) for number in named.split(","))


def main() -> None:
    """Runs the command line; errors of ours are one line, not a traceback."""
    try:
        app()
    except DcocoError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
