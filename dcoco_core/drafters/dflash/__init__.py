"""DFlash: a block-diffusion drafter conditioned on the target's hidden states (arXiv 2602.06036)."""
