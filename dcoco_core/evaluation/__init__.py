"""Measurements of speed and acceptance."""
