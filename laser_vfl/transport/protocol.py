"""The version of the contract in protos/, and limits that both ends of it share."""

PROTOCOL_VERSION = 7

CHUNK_BYTES = 1 << 20
"""How much of a list of ids or rows goes into one message."""

MAX_TENSOR_BYTES = 64 << 20
"""A ceiling for what settings may ask for: batch_size × representation_dim × item size."""

MAX_IDS = 10_000
"""How many samples a question may be about, to a client or between clients."""

MAX_POINTS = 100_000_000
"""How many people a client may bring to an alignment; each client that passes them on keeps all."""

MAX_TOTAL_PEOPLE = 64 * 3 * MAX_POINTS
"""How many people can be in all lists of an alignment: of each client, two tables and those served.

A coordinator takes far fewer, because it holds them all in memory.
"""

KEEPALIVE: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
]

SERVER_BOUNDS: list[tuple[str, int]] = [
    ("grpc.max_concurrent_streams", 100),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_allowed_incoming_connections", 1_000),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.absolute_max_metadata_size", 16 << 10),
]
"""What anybody may take of a server before it has said who it is. Streams are per connection.

A compressed message needs no option: gRPC stops to unpack it at the limit for received messages.
"""

RECONNECT: list[tuple[str, int]] = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]
"""The longest pause between attempts to connect; gRPC alone would go up to two minutes."""
