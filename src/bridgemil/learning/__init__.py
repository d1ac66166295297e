"""Learning: the objectives of Stage 1, and (to come) the loops of both stages."""
