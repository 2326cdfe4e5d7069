"""A critic: a transformer, by default a copy of the policy's, with a linear value head instead of the output embedding.

A critic can also start from a reward model, which comes without its score head.

Axes: T flat tokens, H hidden, M sampled tokens. The value at a response token is computed from the state before it. It
is the reward that the critic expects, given the prompt and the tokens so far.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping

from torch import Tensor, nn

from ansatz.errors import NonFiniteError
from ansatz.models.load import Policy
from ansatz.models.logps import hidden_before
from ansatz.models.threads import parallel_map
from ansatz.objectives.advantage_rule import scattered
from ansatz.objectives.objective import Objective
from ansatz.track.measurements import Measurement, mean
from ansatz.train.batch import TrainBatch
from ansatz.train.logps import without_gradient
from ansatz.train.optim import MasterAdamW, mask_gradients
from ansatz.train.packed import PackedRollouts
from ansatz.train.ranks import ONE_RANK, Ranks
from ansatz.train.step import MicrobatchResult, accumulate_gradients, not_made


class Critic(nn.Module):
    """Starts with the weights of a model under a zero head, so its first values are 0 everywhere.

    Weights that the model keeps frozen (below its adapters) are shared with it. policy: how the transformer runs.
    Example: `Critic(policy).values(packed)` is 0 for every token before the first update.
    """

    def __init__(self, model: Policy) -> None:
        super().__init__()
        frozen = [parameter for parameter in model.model.parameters() if not parameter.requires_grad]
        self.transformer = copy.deepcopy(model.model, {id(parameter): parameter for parameter in frozen})
        self.policy = dataclasses.replace(model, model=self.transformer)
        self.written = {f"transformer.{name}": mask for name, mask in model.written.items()}
        self.value = nn.Linear(model.model.config.hidden_size, 1, device=model.device)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    def values(self, packed: PackedRollouts) -> Tensor:
        """Compute the values [T], float32; 0 outside the mask."""
        return self.policy.run(lambda: self._values(packed))

    def _values(self, packed: PackedRollouts) -> Tensor:
        before_MH = hidden_before(self.policy, packed)
        value_M = self.value(before_MH.to(self.value.weight.dtype)).squeeze(-1).float()
        return scattered(value_M, packed.sampled_mask_T)


@dataclasses.dataclass(frozen=True, slots=True)
class TrainedCritic:
    """A critic and its optimizer.

    tokens_per_microbatch: number of tokens in a forward pass. written: the masks of `Policy.written`, placed like the
    weights. ranks: the processes that train it together.
    """

    module: Critic
    optimizer: MasterAdamW
    tokens_per_microbatch: int
    written: Mapping[str, Tensor]
    ranks: Ranks = ONE_RANK

    def values(self, packed: PackedRollouts) -> Tensor:
        """Compute the critic's values [T] without gradient; 0 outside the mask."""
        return without_gradient(self.module.values, self.module.policy, packed, self.tokens_per_microbatch, self.ranks)

    def accumulate_gradients(self, batch: TrainBatch, objective: Objective, *, step: int) -> dict[str, Measurement]:
        """Compute the gradients of one update towards the batch's returns, and measure train/value_loss.

        The gradients stay in the optimizer until its next step. Raise NonFiniteError, and drop the gradients, if the
        loss or the gradient is nan or inf.
        """

        def compute(part: TrainBatch) -> MicrobatchResult:
            assert part.old_value_T is not None, "a batch for the critic has values"
            assert part.return_T is not None, "a batch for the critic has returns"
            value_T = self.module.values(part.packed)
            loss = objective.value_loss(part, value_T, part.old_value_T, part.return_T)
            error_M = (value_T.detach() - part.return_T)[part.mask_T]
            measured = {"train/value_loss": mean(float(error_M.square().sum()), len(error_M))}
            return float(loss.detach()), measured, self.optimizer.gradients(loss)

        parallel = self.module.policy.parallel_microbatches
        max_tokens = self.module.policy.microbatch_tokens(self.tokens_per_microbatch)
        parts, num_counted = batch.microbatches(max_tokens, self.ranks, multiple=parallel)
        computed = parallel_map(compute, parts, parallel)
        _, measured = accumulate_gradients(
            self.optimizer, computed, num_counted, self.ranks, step=step, of="the critic: "
        )
        mask_gradients(self.optimizer.masters, self.written)
        try:
            self.optimizer.gradient_norm()
        except NonFiniteError as error:
            raise NonFiniteError(not_made(step, f"the critic: {error}")) from error
        return measured

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights, under a prefix, and the optimizer's state."""
        weights = {f"{_WEIGHTS}{name}": value for name, value in self.optimizer.weights().items()}
        return weights | self.optimizer.state()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the result of `tensors`."""
        names = {name for name in tensors if name.startswith(_WEIGHTS)}
        self.optimizer.load(
            {name.removeprefix(_WEIGHTS): tensors[name] for name in names},
            {name: value for name, value in tensors.items() if name not in names},
        )


_WEIGHTS = "weights/"
"""Prefix of the weights in a critic's file. The optimizer's state uses other prefixes there."""
