"""DSpark's Markov heads: a low-rank bias after the chosen token, and a confidence."""
