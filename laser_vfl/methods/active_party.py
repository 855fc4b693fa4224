"""What methods have in common in which one client alone, the active party, has a head."""

from laser_vfl.core.method import Method
from laser_vfl.core.place import Place


class ActiveParty(Method):
    """The first client of the roster that has labels predicts; the others serve it."""

    def heads(self, labelled: int) -> int:
        """Return the active party."""
        return labelled & -labelled

    def learns_from(self, observed: int, place: Place) -> int:
        """Leave out samples that the active party does not hold."""
        return observed if observed & place.heads else 0

    def predicts_from(self, observed: int, place: Place) -> int:
        """Leave them out here, too."""
        return self.learns_from(observed, place)
