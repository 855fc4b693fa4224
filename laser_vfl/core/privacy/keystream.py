"""Random bytes that only holders of a key can compute: ChaCha20, keyed by BLAKE2b."""

import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

KEY_BYTES = 32


def subkey(key: bytes, purpose: bytes, *parts: bytes) -> bytes:
    """Return another key for each purpose (up to 16 bytes) and list of parts."""
    digest = hashlib.blake2b(key=key, person=purpose, digest_size=KEY_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def keystream(key: bytes, num_bytes: int) -> bytes:
    """Return the bytes of a key. Each key is for one use, so the nonce need not differ."""
    return (
        Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(num_bytes))
    )
