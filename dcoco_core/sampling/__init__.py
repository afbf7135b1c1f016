"""Filtered distributions and keyed noise."""
