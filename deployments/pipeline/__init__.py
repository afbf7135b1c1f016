"""What carries rows between stages: envelopes, planner, transports."""
