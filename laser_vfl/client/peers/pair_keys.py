"""The keys that this process shares with each of its peers, agreed on in the hellos of a stream."""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from laser_vfl.client.session.member_view import Peer
from laser_vfl.core.errors import ContractError
from laser_vfl.core.privacy.keystream import KEY_BYTES


class PairKeys:
    """Drawn anew for each process in each run, never written down, and unknown to third parties."""

    def __init__(self, run: str, me: Peer) -> None:
        self._run = run
        self._me = me
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()
        self._agreed: dict[int, tuple[bytes, bytes]] = {}
        """By incarnation: the peer's public key, and the key shared with it."""

    def agree(self, peer: Peer, public: bytes) -> None:
        """Take in a peer's public key; a process has one, however often its stream breaks."""
        known = self._agreed.get(peer.incarnation)
        if known is None:
            self._agreed[peer.incarnation] = public, self._derived(peer, public)
        elif known[0] != public:
            raise ContractError(f"{peer.name} has changed its public key")

    def key_of(self, peer: Peer) -> bytes:
        """Return the key shared with a peer, from which something has come already."""
        return self._agreed[peer.incarnation][1]

    def _derived(self, peer: Peer, public: bytes) -> bytes:
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise ContractError(f"{peer.name} sent no usable public key") from None
        ends = sorted([(self._me, self.public), (peer, public)], key=lambda end: end[0].index)
        said = [self._run, *(f"{p.index} {p.name} {p.incarnation} {k.hex()}" for p, k in ends)]
        info = "\n".join(["laser-vfl masked gradients", *said]).encode()
        return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(shared)
