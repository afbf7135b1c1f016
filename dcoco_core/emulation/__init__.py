"""Stand-ins for accelerators: the real protocol and messages, recorded answers, modelled times."""
