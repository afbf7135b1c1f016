"""Drafters: networks that propose the candidates of a whole block at once."""
