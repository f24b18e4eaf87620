"""An exponential moving average of a network's state, kept beside it and never in its forward pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Average:
    """The average of parameters and floating-point buffers; whole-number buffers are the latest."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move every value by 1 - decay towards the network's."""
        now = model.state_dict()
        smooth = [name for name, value in now.items() if value.is_floating_point()]
        torch._foreach_lerp_(
            [self.state[name] for name in smooth], [now[name] for name in smooth], 1 - self.decay
        )
        for name in now.keys() - set(smooth):
            self.state[name].copy_(now[name])

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over a saved average."""
        for name, value in self.state.items():
            value.copy_(state[name])
