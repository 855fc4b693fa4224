"""The settings of a training run with one of the methods: what is configured, sent and stored."""

from laser_vfl.core.settings import AlgorithmSettings
from laser_vfl.methods.profiles import DEFAULT_METHOD, PROFILES, MethodName, MethodProfile


class TrainingSettings(AlgorithmSettings):
    """What must be equal across a federation. `method` is one that exists here."""

    method: MethodName = DEFAULT_METHOD

    @property
    def profile(self) -> MethodProfile:
        """The facts about the method."""
        return PROFILES[self.method]

    @property
    def needs_pair_keys(self) -> bool:
        """Whether each pair of clients needs a key that nobody else has."""
        return self.masked_gradients or self.profile.shares_pair_keys

    @property
    def rounding_refusal(self) -> tuple[str, str] | None:
        """Return why rows may not travel as small integers, and what to do; None if they may."""
        if not self.rounds_rows:
            return None
        otherwise = "write float32, float16 or bfloat16"
        if self.masked_gradients:
            why = "masks are sums of integers that all clients agree on, and rows have own scales"
            return f"{self.wire_precision} cannot be used with masked_gradients: {why}", otherwise
        if self.profile.needs_exact_rows:
            why = f"before training, {self.method} exchanges rows that must not be rounded so far"
            return why, otherwise
        return None

    def exchanged_width(self, num_clients: int) -> int:
        """Return how wide a row is that one client sends another, or gets back."""
        return self.representation_dim * self.profile.num_exchanged(num_clients)
