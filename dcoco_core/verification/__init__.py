"""The only place that decides tokens: acceptance rules and commit."""
