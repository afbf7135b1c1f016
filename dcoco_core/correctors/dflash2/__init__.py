"""DFlash2's candidate selector: a learned score of token pairs, gated by the drafter's state."""
