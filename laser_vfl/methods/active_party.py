"""Block use of methods in which one client alone, the active party, has a head."""

from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import BlockUse


class ActivePartyBlocks(BlockUse):
    """The first client of the roster that has labels predicts; the others serve it."""

    def heads(self, labelled: int) -> int:
        """Return the active party."""
        return labelled & -labelled

    def learns_from(self, observed: int, context: FederationContext) -> int:
        """Leave out samples that the active party does not hold."""
        return observed if observed & context.heads else 0

    def predicts_from(self, observed: int, context: FederationContext) -> int:
        """Leave them out here, too."""
        return self.learns_from(observed, context)
