"""Choosing how to draft: fitted stage costs, acceptance, plans. No clock, no torch, no I/O."""
