"""No readout at all: weights that came without one can be looked into, but say nothing of what follows a text."""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor, nn

from nextword.contract_errors import Unsupported


class Silent(nn.Module):
    bias = None

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        self._refuse()

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        self._refuse()

    def log_probs(self, h: Tensor) -> Tensor:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Unsupported(
            "This run has no output layer: it was read from weights that hold none, so it neither scores nor writes "
            "text. It gives vectors: `nextword embed RUN FILE`."
        )
