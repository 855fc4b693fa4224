"""The service for applications, whose questions are read and parsed when there is room for them."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from laser_vfl.v1 import prediction_pb2 as pb

SERVICE = "laser_vfl.v1.Prediction"

Behaviour = Callable[[Any, Any], Awaitable[Any]]


def add_predictions(
    server: grpc.aio.Server,
    *,
    predict: Behaviour,
    status: Behaviour,
    align: Behaviour,
    publish: Behaviour,
) -> None:
    """Serve what applications and operators ask.

    `predict` reads one serialised request and writes one serialised answer. It is a stream here,
    which looks the same on the wire: so it decides when the request is read, and knows when the
    answer has been.
    """
    stream: Any = grpc.stream_stream_rpc_method_handler(
        predict, request_deserializer=None, response_serializer=None
    )
    handlers: dict[str, Any] = {
        "Predict": stream,
        "GetClientStatus": grpc.unary_unary_rpc_method_handler(
            status,
            request_deserializer=pb.GetClientStatusRequest.FromString,
            response_serializer=pb.ClientStatus.SerializeToString,
        ),
        "Align": grpc.unary_unary_rpc_method_handler(
            align,
            request_deserializer=pb.AlignRequest.FromString,
            response_serializer=pb.AlignResponse.SerializeToString,
        ),
        "Publish": grpc.unary_unary_rpc_method_handler(
            publish,
            request_deserializer=pb.PublishRequest.FromString,
            response_serializer=pb.PublishResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
