"""From a checked body to the request the verifier decodes."""

from __future__ import annotations

import secrets

from dcoco_core.registry import shorten, unknown_name
from dcoco_core.types import Limits, Request, SamplingParams, Speculation
from deployments.openai_api.backend import ModelFacts
from deployments.openai_api.errors import ApiError, invalid
from deployments.openai_api.prompts import Prompt
from deployments.openai_api.schemas import GenerationRequest, SpeculationOptions

DEFAULT_TEMPERATURE = 1.0  # OpenAI's


def check_model(name: str, facts: ModelFacts) -> None:
    """Raises a 404 for a model this server does not have."""
    if name != facts.served_name:
        raise ApiError(
            404,
            f"The model {shorten(name)!r} does not exist. "
            f"This server serves {facts.served_name!r}.",
            param="model",
            code="model_not_found",
        )


def to_request(
    params: GenerationRequest,
    prompt: Prompt,
    facts: ModelFacts,
    eos_token_ids: frozenset[int],
    request_id: str,
) -> Request:
    """The core's request. `max_tokens` is cut to what the context has room for."""
    room = facts.max_model_len - len(prompt.token_ids)
    if room < 1:
        raise invalid(
            f"The prompt has {len(prompt.token_ids)} tokens. This model's context is "
            f"{facts.max_model_len} tokens, and at least one must be left for the reply.",
            prompt.param,
            "context_length_exceeded",
        )
    return Request(
        request_id=request_id,
        prompt_ids=prompt.token_ids,
        limits=Limits(
            max_tokens=min(params.token_limit or room, room),
            stop_ids=frozenset() if params.ignore_eos else eos_token_ids,
        ),
        sampling=_sampling(params),
        speculation=_speculation(params.speculation, facts),
    )


def _sampling(params: GenerationRequest) -> SamplingParams:
    temperature = DEFAULT_TEMPERATURE if params.temperature is None else params.temperature
    return SamplingParams(
        temperature=float(temperature),
        top_k=max(params.top_k or 0, 0),
        top_p=1.0 if params.top_p is None else float(params.top_p),
        seed=params.seed,
        noise_key=secrets.randbits(63) if params.seed is None else params.seed,
    )


def _speculation(options: SpeculationOptions | None, facts: ModelFacts) -> Speculation:
    default = facts.default_speculation
    if options is None:
        return default
    corrector = default.corrector if options.corrector is None else options.corrector
    if corrector not in facts.correctors:
        message = unknown_name("corrector", corrector, list(facts.correctors))
        raise invalid(f"speculation.corrector: {message}", "speculation.corrector")
    return Speculation(_num_draft_tokens(options, facts), corrector)


def _num_draft_tokens(options: SpeculationOptions, facts: ModelFacts) -> int:
    most = facts.max_num_draft_tokens
    wanted = options.num_draft_tokens
    if wanted is not None and wanted > most:
        raise invalid(
            f"speculation.num_draft_tokens must be 0 to {most} on this server, got {wanted}.",
            "speculation.num_draft_tokens",
        )
    if options.enabled and most == 0:
        raise invalid("speculation.enabled: this server has no drafter.", "speculation.enabled")
    if options.enabled is not None and wanted is not None and options.enabled != (wanted > 0):
        raise invalid(
            f"speculation.enabled ({str(options.enabled).lower()}) and "
            f"speculation.num_draft_tokens ({wanted}) disagree: send one.",
            "speculation.num_draft_tokens",
        )
    if wanted is not None:
        return wanted
    if options.enabled is False:
        return 0
    usual = facts.default_speculation.num_draft_tokens
    return (usual or most) if options.enabled else usual
