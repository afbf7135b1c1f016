"""Domino: a GRU over the chosen prefix corrects every position after the first."""
