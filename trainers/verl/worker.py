"""verl's worker (policy, reference and engine of one GPU) with the trial's loss in it."""

from __future__ import annotations

from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.engine_workers import ActorRolloutRefWorker

from trainers.verl.carried import trial_of
from trainers.verl.loss import MicroBatchLoss, Seen


class PolicyWorker(ActorRolloutRefWorker):
    """As verl's own; `take_seen` tells what its updates saw.

    Not named Worker: verl would take a class of that name for the base of all.
    """

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the model, then put our loss in the place of verl's."""
        super().init_model()
        self.trial_loss = MicroBatchLoss(trial_of(self.config.rollout))
        self.actor.set_loss_fn(self.trial_loss)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def take_seen(self) -> list[Seen]:
        """What this worker's updates saw of their rows since the last call."""
        return self.trial_loss.take()
