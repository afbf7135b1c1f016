"""Correctors: turn a lattice of candidates into one token per position."""

from dcoco_core.correctors.catalog import CORRECTORS, load_corrector

__all__ = ["CORRECTORS", "load_corrector"]
