"""LiLiCorr: a small transformer over the whole candidate lattice, read out as pair scores."""
