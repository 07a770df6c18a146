"""One solve of the random diffusion problem: stored matrices or operators, preconditioners, memory."""
