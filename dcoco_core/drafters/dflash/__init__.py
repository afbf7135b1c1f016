"""DFlash: a block-diffusion drafter conditioned on the target's hidden states."""
