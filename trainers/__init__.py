"""How policies learn: the four axes, rollouts, behaviour cloning and the training back-ends."""
