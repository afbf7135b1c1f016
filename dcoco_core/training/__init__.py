"""Training of drafters and correctors, from recorded target answers."""
