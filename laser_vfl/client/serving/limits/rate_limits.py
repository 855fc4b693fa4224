"""How much each peer may ask of us, and how much it has asked."""

from dataclasses import dataclass, field

from laser_vfl.core.token_bucket import Bucket


@dataclass
class Account:
    """One peer's questions."""

    requests: Bucket
    samples: Bucket
    num_requests: int = 0
    num_ids_asked: int = 0
    num_ids_served: int = 0
    num_refused: int = 0


@dataclass
class Accounts:
    """The accounts of all peers, each with the same limits."""

    requests_per_s: float
    samples_per_s: float
    by_peer: dict[str, Account] = field(default_factory=dict)

    def admit(self, peer: str, num_ids: int, now: float) -> float:
        """Count a question; return 0 if it may be answered, or how long it has to wait."""
        account = self.by_peer.setdefault(
            peer, Account(Bucket(self.requests_per_s), Bucket(self.samples_per_s))
        )
        account.num_requests += bool(num_ids)  # a probe is none
        account.num_ids_asked += num_ids
        wait_s = max(account.requests.wait_s(now), account.samples.wait_s(now))
        if wait_s > 0:
            account.num_refused += 1
            return wait_s
        account.requests.take(1)
        account.samples.take(num_ids)
        return 0.0

    def served(self, peer: str, num_ids: int) -> None:
        """Count the ids that were really answered for."""
        self.by_peer[peer].num_ids_served += num_ids
