"""The version of the contract in protos/, and limits that both ends of it share."""

from datetime import timedelta

PROTOCOL_VERSION = 3

HEARTBEAT_INTERVAL = timedelta(seconds=1)

CHUNK_BYTES = 1 << 20
"""How much of a list of ids or rows goes into one message."""

MAX_TENSOR_BYTES = 64 << 20
"""The largest tensor a frame may carry: batch_size × representation_dim × item size."""

MAX_IDS = 10_000
"""How many samples a question may be about, to a client or between clients."""

MAX_POINTS = 100_000_000
"""How many people a client may bring to an alignment; whoever passes them on remembers them all."""

MESSAGE_OVERHEAD_BYTES = 64 << 10
"""What a message may carry besides its payload."""

KEEPALIVE: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
]

REQUEST_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", MAX_TENSOR_BYTES + MESSAGE_OVERHEAD_BYTES),
]
"""For the server of predictions: a message of many tiny parts takes up far more when it is read."""

FRAME_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_TENSOR_BYTES + MESSAGE_OVERHEAD_BYTES),
    ("grpc.max_send_message_length", MAX_TENSOR_BYTES + MESSAGE_OVERHEAD_BYTES),
]
