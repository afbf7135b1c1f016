"""What an emulated draft proposes: the tape, and something else from the first mistake on."""

from __future__ import annotations

from dcoco_core.emulation.acceptance import AcceptanceSource
from dcoco_core.emulation.tape import AnswerTape
from dcoco_core.types import RowHeader


def proposals(
    header: RowHeader, corrector: str, tape: AnswerTape, acceptance: AcceptanceSource
) -> list[int]:
    """The header's num_draft_tokens tokens, of which the verifier will accept a drawn prefix.

    The draw depends on the request's noise key and the position alone, so a request that is
    decoded again is accepted alike, whoever decodes it.
    """
    noise_key, length = header.sampling.noise_key, header.num_draft_tokens
    tokens = tape.tokens(noise_key, header.start + 1, length)
    num_right = acceptance.num_accepted(corrector, f"{noise_key}/{header.start}", length)
    if num_right < length:
        tokens[num_right] = tape.other(tokens[num_right])
    return tokens
