"""The engine over real stages decodes what the plain loop decodes; the Drafter frees lost rows."""

import asyncio

import pytest
import torch

from dcoco_core.decode import collect, decode
from dcoco_core.drafters.dflash.drafter import DFlashDrafter
from dcoco_core.types import (
    DraftRequest,
    Limits,
    Request,
    RowHeader,
    SamplingParams,
    Speculation,
    Verdict,
)
from deployments.config import AppArgs
from deployments.drafter import Drafter
from deployments.engine import Engine, EngineSettings
from deployments.pipeline.envelope import Envelope, decode_draft, encode
from deployments.pipeline.transport import InProcessPath
from deployments.stages import stages_of
from deployments.warm_up import warm_up
from tests import tiny_model


@pytest.fixture(scope="module")
def args(tmp_path_factory: pytest.TempPathFactory) -> AppArgs:
    root = tmp_path_factory.mktemp("models")
    target = tiny_model.write_target(root / "target")
    drafter = tiny_model.write_drafter(root / "drafter", target)
    corrector = tiny_model.write_corrector(root / "corrector", target, drafter)
    return AppArgs(
        target=str(target),
        drafter=str(drafter),
        correctors={"none": None, "dcoco": str(corrector)},
        default_corrector="dcoco",
        num_draft_tokens=7,
        numerics="exact",
        max_slots=3,
        max_model_len=128,
        prefill_chunk=16,
        lease_timeout_s=1.0,
    )


def request(index: int, corrector: str, num_draft_tokens: int = 7) -> Request:
    samplings = (
        SamplingParams(),
        SamplingParams(0.8, top_k=50, top_p=0.9, seed=index, noise_key=index),
    )
    return Request(
        f"r{index}",
        tuple(range(10 + index, 30 + 3 * index)),
        Limits(30 + index),
        samplings[index % 2],
        Speculation(num_draft_tokens, corrector),
    )


async def test_mixed_requests_equal_plain_decoding(args: AppArgs) -> None:
    correctors = ["none", "dcoco", "dcoco", "none", "dcoco", "none"]
    requests = [request(index, name, 7 - index) for index, name in enumerate(correctors)]
    plain = stages_of(args).verifier().core
    expected = collect(decode(requests, plain))

    stages = stages_of(args)
    loaded = stages.verifier()
    corrector = stages.correctors()
    drafted = stages.drafter(corrector.num_candidates)
    assert drafted.fingerprint == loaded.fingerprint
    core, drafter = loaded.core, drafted.core
    assert isinstance(drafter, DFlashDrafter)
    path = InProcessPath(drafter, corrector)
    await warm_up(core, path, args)
    engine = Engine(core, path, EngineSettings())

    async def read(one: Request) -> list[Verdict]:
        return [verdict async for verdict in engine.generate(one)]

    verdicts = [v for found in await asyncio.gather(*map(read, requests)) for v in found]
    assert collect(verdicts) == expected
    assert engine.counts.drafted_rounds > 0
    assert engine.num_draft_failures == 0
    for _ in range(200):
        if drafter.num_free_slots == core.num_free_slots == args.max_slots:
            break
        await asyncio.sleep(0.01)
    assert drafter.num_free_slots == core.num_free_slots == args.max_slots
    await engine.close()


def draft_envelope(name: str, num_rows: int = 4) -> Envelope:
    header = RowHeader(name, 0, num_rows, 5, 3, SamplingParams(), "dcoco", 0, num_rows)
    return encode(DraftRequest((header,), torch.ones((num_rows, tiny_model.HIDDEN_SIZE))))


async def test_the_drafter_frees_what_no_verifier_asks_for_any_more(args: AppArgs) -> None:
    drafter = Drafter.__new__(Drafter)
    await drafter.__init__(args)  # type: ignore[misc]
    draft = decode_draft(await drafter.draft(draft_envelope("lost")))
    assert draft.token_ids.shape == (1, 3)
    await drafter.draft(draft_envelope("told"))
    core = drafter._core
    assert isinstance(core, DFlashDrafter)
    assert core.num_free_slots == 1
    await drafter.release(["told"])
    assert core.num_free_slots == 2
    await drafter.check_health()
    assert core.num_free_slots == 2
    await asyncio.sleep(2 * args.lease_timeout_s)
    await drafter.draft(draft_envelope("new"))
    await drafter.check_health()
    assert core.num_context_rows("lost") == 0
    assert core.num_context_rows("new") == 4
    assert await drafter.health() == {"drafter": "ready", "corrector": "ready"}
