"""Lossless speculative decoding: target, drafter, corrector, verifier and the loop between them."""
