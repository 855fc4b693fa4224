"""How large a message may be: what is expected in it, and a little more."""

from laser_vfl.core.settings import TrainingSettings
from laser_vfl.wire.protocol import CHUNK_BYTES, MAX_IDS, MAX_TENSOR_BYTES

Options = list[tuple[str, int]]

MESSAGE_OVERHEAD_BYTES = 64 << 10
"""What a message may carry besides its payload."""

ASKED_ID_BYTES = 32
"""A sample in a question between clients is a digest, or a shorter name."""

PLACE_BYTES = 4
"""Which of the samples a representation in an answer is of."""

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
MASKED_ITEM_BYTES = 8

QUESTION_BYTES = MAX_IDS * ASKED_ID_BYTES


def bounded(*, receive: int, send: int) -> Options:
    """Return the options of a server or a channel whose messages have payloads of such sizes."""
    return [
        ("grpc.max_receive_message_length", receive + MESSAGE_OVERHEAD_BYTES),
        ("grpc.max_send_message_length", send + MESSAGE_OVERHEAD_BYTES),
    ]


COORDINATOR_OPTIONS = bounded(receive=CHUNK_BYTES, send=CHUNK_BYTES)
"""For both ends: nothing that a client and its coordinator tell each other is longer than that."""

RING_OPTIONS = bounded(receive=0, send=CHUNK_BYTES)
"""For the caller of HandOn, which is answered with a number."""

REQUEST_OPTIONS = bounded(receive=4 << 20, send=MAX_TENSOR_BYTES)
"""For the server of predictions: a message of many tiny parts takes up far more when it is read."""

APPLICATION_OPTIONS = bounded(receive=MAX_TENSOR_BYTES, send=MAX_TENSOR_BYTES)
"""For whoever asks a daemon of its own; the daemon says what is too much."""


def item_bytes(settings: TrainingSettings) -> int:
    """Return how many bytes a number has that clients exchange in training, at most."""
    if settings.masked_gradients:
        return MASKED_ITEM_BYTES
    return ITEM_BYTES[settings.wire_precision]


def frame_bytes(settings: TrainingSettings, num_clients: int) -> int:
    """Return the size of the largest tensor that a frame carries: one for a whole batch."""
    row = settings.exchanged_width(num_clients) * item_bytes(settings)
    return settings.batch_size * row


def most_rows(settings: TrainingSettings, num_clients: int) -> int:
    """Return how many samples a question between clients may be about."""
    return min(MAX_IDS, MAX_TENSOR_BYTES // _row_bytes(settings, num_clients))


def exchange_options(settings: TrainingSettings, num_clients: int) -> Options:
    """Return what the caller of Exchange allows."""
    frame = frame_bytes(settings, num_clients)
    return bounded(receive=frame, send=frame)


def asking_options(settings: TrainingSettings, num_clients: int) -> Options:
    """Return what the caller of Represent allows: answers to the longest question."""
    row = _row_bytes(settings, num_clients) + PLACE_BYTES
    return bounded(receive=most_rows(settings, num_clients) * row, send=QUESTION_BYTES)


def peer_server_options(settings: TrainingSettings | None, num_clients: int = 0) -> Options:
    """Return what a client takes from its peers; without settings nobody sends frames yet.

    What it sends is not limited by them: it may answer with the wider model of another run.
    """
    expected = frame_bytes(settings, num_clients) if settings else 0
    return bounded(receive=max(expected, QUESTION_BYTES, CHUNK_BYTES), send=MAX_TENSOR_BYTES)


def _row_bytes(settings: TrainingSettings, num_clients: int) -> int:
    return settings.exchanged_width(num_clients) * ITEM_BYTES[settings.wire_precision]
