"""The recurrent representation model, for sequences (steps, features)."""

from typing import cast

from torch import Tensor, nn


class Lstm(nn.Module):
    """Each step is embedded, an LSTM reads the steps, its last state becomes the representation."""

    def __init__(self, num_features: int, representation_dim: int, *, width: int, layers: int):
        super().__init__()
        self.embedding = nn.Linear(num_features, width)
        self.lstm = nn.LSTM(width, width, num_layers=layers, batch_first=True)
        self.output = nn.Linear(width, representation_dim)

    def forward(self, rows_btf: Tensor) -> Tensor:
        _, (last_state_lbw, _) = self.lstm(self.embedding(rows_btf))
        return cast(Tensor, self.output(last_state_lbw[-1]))
