"""How long a client waits before it tries again, speaks up or gives up."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WaitingTimes:
    """The same at every client; fault tests shorten them (`laser_vfl/config/test_policy.py`)."""

    heartbeat_s: float = 1.0
    """How often the coordinator hears of this client when nothing changes."""
    retry_s: float = 0.5
    """How long before the coordinator is called again when it was out of reach."""
    after_failure_s: float = 5.0
    """How long a serving client waits before it tries again what it could not do."""
    unheard_s: float = 5.0
    """How long the coordinator may be out of reach before a client that needs it says so."""
    leave_step_s: float = 3.0
    """How long a client that leaves goes on with its step before it drops it."""
    leave_s: float = 5.0
    """How long it then waits for a view without it."""
    ring_connect_s: float = 20.0
    """How long a client of an alignment tries to reach the next one."""
    ring_stall_s: float = 120.0
    """How long nothing may come to a client of an alignment while lists are on their way."""
    ring_hop_s: float = 15.0
    """How much longer a client waits for a list than the client before it in the ring.

    The client next to a silent one gives up first, so the reason names the right client.
    """
    ring_grace_s: float = 15.0
    """How long the coordinator has to notice that a client is gone, before a peer reports it."""


DEFAULT_TIMES = WaitingTimes()
