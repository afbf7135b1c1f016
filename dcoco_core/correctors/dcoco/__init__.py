"""DCOCO: scores every pair of adjacent candidates at once, then walks prefix-first."""
