"""How large a message may be: what is expected in it, and a little more."""

from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.protocol import CHUNK_BYTES, MAX_IDS, MAX_TENSOR_BYTES

Options = list[tuple[str, int]]

MESSAGE_OVERHEAD_BYTES = 64 << 10
"""What a message may carry besides its payload."""

ASKED_ID_BYTES = 32
"""A sample in a question between clients is a digest, or a shorter name."""

PLACE_BYTES = 4
"""Which of the samples a representation in an answer is of."""

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8}
ROW_BITS = {"int8": 8, "int4": 4}
SCALE_BYTES = 2
"""Of each row of small integers."""

QUESTION_BYTES = MAX_IDS * ASKED_ID_BYTES


def bounded(*, receive: int, send: int) -> Options:
    """Return the options of a server or a channel whose messages have payloads of such sizes."""
    return [
        ("grpc.max_receive_message_length", receive + MESSAGE_OVERHEAD_BYTES),
        ("grpc.max_send_message_length", send + MESSAGE_OVERHEAD_BYTES),
    ]


HEARTBEAT_BYTES = 64 << 10
"""A heartbeat is far shorter. Its parts take more time to parse than those of any other message."""

MAX_BYTES = {"/laser_vfl.v1.Coordinator/Session": HEARTBEAT_BYTES}
"""By method: messages that are longer are refused before they are parsed."""

COORDINATOR_OPTIONS = bounded(receive=CHUNK_BYTES, send=CHUNK_BYTES)
"""For both ends: nothing that a client and its coordinator tell each other is longer than that."""

RING_OPTIONS = bounded(receive=0, send=CHUNK_BYTES)
"""For the caller of HandOn, which is answered with a number."""

REQUEST_BYTES = 4 << 20
REQUEST_OPTIONS = bounded(receive=REQUEST_BYTES, send=MAX_TENSOR_BYTES)
"""For the server of predictions: a message of many tiny parts takes up far more when it is read."""

APPLICATION_OPTIONS = bounded(receive=MAX_TENSOR_BYTES, send=MAX_TENSOR_BYTES)
"""For whoever asks a daemon of its own; the daemon says what is too much."""


def row_bytes(width: int, dtype: str) -> int:
    """Return how many bytes a row takes in a type of the wire."""
    if dtype in ROW_BITS:
        return -(-width * ROW_BITS[dtype] // 8) + SCALE_BYTES
    return width * ITEM_BYTES[dtype]


def longest_row(settings: TrainingSettings, num_clients: int) -> int:
    """Return how many bytes a row takes that clients exchange in training, at most."""
    dtype = "int64" if settings.masked_gradients else settings.wire_precision
    return row_bytes(settings.exchanged_width(num_clients), dtype)


def frame_bytes(settings: TrainingSettings, num_clients: int) -> int:
    """Return the size of the largest tensor that a frame carries: one for a whole batch."""
    return settings.batch_size * longest_row(settings, num_clients)


def most_rows(settings: TrainingSettings, num_clients: int) -> int:
    """Return how many samples a question between clients may be about."""
    return min(MAX_IDS, MAX_TENSOR_BYTES // answered_row(settings, num_clients))


def frames_together(settings: TrainingSettings) -> int:
    """Return how many frames may travel in a message: a gradient, and a later representation."""
    return 2 if settings.pipeline else 1


def frames_bytes(settings: TrainingSettings, num_clients: int) -> int:
    """Return the size of the largest payload of a message with frames."""
    return frame_bytes(settings, num_clients) * frames_together(settings)


def most_together(settings: TrainingSettings, num_clients: int) -> int:
    """Return how long serialised frames may be that travel in one message."""
    return frames_bytes(settings, num_clients) + MESSAGE_OVERHEAD_BYTES // 2


def exchange_options(settings: TrainingSettings, num_clients: int) -> Options:
    """Return what the caller of Exchange allows."""
    frames = frames_bytes(settings, num_clients)
    return bounded(receive=frames, send=frames)


def asking_options(settings: TrainingSettings, num_clients: int) -> Options:
    """Return what the caller of Represent allows: answers to the longest question."""
    row = answered_row(settings, num_clients) + PLACE_BYTES
    return bounded(receive=most_rows(settings, num_clients) * row, send=QUESTION_BYTES)


def peer_message_bytes(settings: TrainingSettings | None, num_clients: int = 0) -> int:
    """Return the largest payload that peers send; without settings nobody sends frames yet."""
    expected = frames_bytes(settings, num_clients) if settings else 0
    return max(expected, QUESTION_BYTES, CHUNK_BYTES)


def peer_server_options(receive: int) -> Options:
    """Return the options of a client's port for peers, which takes payloads up to this size.

    What it sends is not limited by a run's settings: it may answer with the wider model of another.
    """
    return bounded(receive=receive, send=MAX_TENSOR_BYTES)


def answered_row(settings: TrainingSettings, num_clients: int) -> int:
    """Return how many bytes a row takes in an answer to a peer that predicts."""
    return row_bytes(settings.exchanged_width(num_clients), settings.serving_precision)
