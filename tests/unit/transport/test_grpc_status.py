"""Errors across the wire: ours come back as they were, foreign ones say nothing."""

import asyncio
import contextlib
import logging
import re
import traceback

import grpc
import grpc.aio
import pytest
from google.protobuf.message import DecodeError
from grpc.aio import AioRpcError, Metadata

from laser_vfl.core import errors
from laser_vfl.core.errors import AddressError, IdentityError
from laser_vfl.security.access import AdmittedCall, Authorizer
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport import grpc_status
from laser_vfl.transport.grpc_status import (
    AuthInterceptor,
    HungUp,
    RefusalPacer,
    error_from,
    heed_cancellation,
    is_ours,
)

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.LaserError)
]
OURS = [kind for kind in KINDS if kind is not errors.LaserError]


class Aborted(Exception):
    """What the fake context ends a call with."""


class Refusals:
    """Who was refused last."""

    last = ()

    def note(self, *what):
        self.last = what


REFUSALS = Refusals()


class FakeContext:
    """Has the messages of a call, and keeps what the call was ended with."""

    def __init__(self, *requests):
        self.requests = [*requests]

    def peer(self):
        return "memory:1"

    async def read(self):
        request = self.requests.pop(0) if self.requests else grpc.aio.EOF
        if isinstance(request, Exception):
            raise request
        return request

    async def abort(self, code, details="", trailing_metadata=()):
        self.code, self.details, self.trailing = code, details, tuple(trailing_metadata)
        raise Aborted


MAKERS = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


class Details:
    """A call, as an interceptor is told of it."""

    def __init__(self, method):
        self.method = method


def intercepted(
    behaviour, shape="unary_unary", method="/laser_vfl.v1.Peer/Exchange", deserializer=len
):
    handler = MAKERS[shape](behaviour, request_deserializer=deserializer, response_serializer=repr)

    async def continuation(_):
        return handler

    guarded = asyncio.run(
        AuthInterceptor(Authorizer(Credentials()), REFUSALS.note).intercept_service(
            continuation, Details(method)
        )
    )
    return handler, guarded


def handling(guarded):
    """Return what is done at a call."""
    return guarded.stream_unary or guarded.stream_stream


def ended_with(error, shape="unary_unary"):
    async def behaviour(request, context):
        raise error

    _, guarded = intercepted(behaviour, shape)
    context = FakeContext("request")
    with pytest.raises(Aborted):
        asyncio.run(handling(guarded)(None, context))
    return context


def at_the_caller(context):
    return AioRpcError(
        context.code,
        initial_metadata=Metadata(),
        trailing_metadata=Metadata(*context.trailing),
        details=context.details,
    )


def test_there_are_errors_to_test():
    assert {errors.ContractError, errors.NotRegistered, errors.DataError} <= set(OURS)
    assert len(OURS) >= 8


@pytest.mark.parametrize("kind", OURS)
def test_every_error_of_ours_comes_back_as_the_same_class(kind):
    context = ended_with(kind("the width is 3", hint="make it 4"))
    assert isinstance(context.code, grpc.StatusCode)
    assert context.code not in (grpc.StatusCode.OK, grpc.StatusCode.INTERNAL)
    rpc_error = at_the_caller(context)
    assert is_ours(rpc_error)
    back = error_from(rpc_error, doing="asking")
    assert type(back) is kind
    assert str(back) == "the width is 3; make it 4"
    assert back.exit_code == kind.exit_code


def test_a_more_special_error_comes_back_as_the_one_the_wire_knows():
    class Odd(errors.DataError):
        pass

    assert type(error_from(at_the_caller(ended_with(Odd("odd"))), doing="x")) is errors.DataError


@pytest.mark.parametrize("shape", list(MAKERS))
def test_a_foreign_exception_is_only_a_reference(shape, caplog):
    with caplog.at_level(logging.ERROR):
        context = ended_with(ValueError("/home/bank/secret.csv has 3 rows"), shape)
    assert context.code is grpc.StatusCode.INTERNAL
    found = re.fullmatch(r"internal error, ref=([0-9a-f]{8})", context.details)
    assert found
    assert context.trailing == ()
    # Here, and only here, it can be looked up.
    assert found[1] in caplog.text
    assert "secret.csv" in caplog.text
    rpc_error = at_the_caller(context)
    assert not is_ours(rpc_error)
    back = error_from(rpc_error, doing="asking bank")
    assert isinstance(back, errors.ContractError)
    assert str(back) == f"asking bank: {context.details}"


@pytest.mark.parametrize("shape", list(MAKERS))
def test_a_call_that_ends_well_is_left_alone(shape):
    async def behaviour(request, context):
        if shape.startswith("stream"):
            request = await context.read()
        return request * 2

    handler, guarded = intercepted(behaviour, shape)
    assert asyncio.run(handling(guarded)(None, FakeContext("ab"))) == "abab"
    assert guarded.response_streaming == handler.response_streaming
    assert guarded.request_deserializer(b"abc") == 3
    assert guarded.response_serializer is repr


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([DecodeError("Error parsing message with type 'secret'")], "a message cannot be read"),
        ([], "no message came"),
    ],
)
def test_a_request_that_cannot_be_read_or_does_not_come_is_refused(requests, said):
    async def behaviour(request, context):
        return request

    _, guarded = intercepted(behaviour)
    context = FakeContext(*requests)
    with pytest.raises(Aborted):
        asyncio.run(handling(guarded)(None, context))
    assert context.code == grpc.StatusCode.INVALID_ARGUMENT
    assert context.details == said


@pytest.mark.parametrize("shape", list(MAKERS))
def test_nothing_is_read_of_who_is_not_let_in(shape):
    """Otherwise anybody could have memory filled."""

    async def behaviour(request, context):
        return request

    _, guarded = intercepted(behaviour, shape, method="/laser_vfl.v1.Peer/Forgotten")
    assert guarded.request_streaming, "gRPC reads the message of a call that takes no stream"
    context = FakeContext("request")
    with pytest.raises(Aborted):
        asyncio.run(handling(guarded)(None, context))
    assert context.requests == ["request"]


@pytest.mark.parametrize("ending", [grpc.aio.AbortError(), asyncio.CancelledError()])
def test_an_abort_and_a_cancellation_pass_through(ending):
    async def behaviour(request, context):
        raise ending

    _, guarded = intercepted(behaviour)

    async def call():
        with pytest.raises(type(ending)):
            await handling(guarded)(None, FakeContext(""))

    asyncio.run(call())


def test_unknown_methods_are_not_touched():
    async def nothing(_):
        return None

    details = Details("/laser_vfl.v1.Peer/Unknown")
    interceptor = AuthInterceptor(Authorizer(Credentials()), REFUSALS.note)
    assert asyncio.run(interceptor.intercept_service(nothing, details)) is None


def test_what_is_served_without_being_in_the_table_is_refused_to_all():
    async def behaviour(request, context):
        return request

    _, guarded = intercepted(behaviour, method="/laser_vfl.v1.Peer/Forgotten")
    context = FakeContext("request")
    with pytest.raises(Aborted):
        asyncio.run(handling(guarded)(None, context))
    assert context.code is grpc.StatusCode.PERMISSION_DENIED


def test_a_call_ends_with_the_certificate():
    class Brief(Authorizer):
        @contextlib.contextmanager
        def admit(self, method, context):
            yield AdmittedCall(None, 0.01)

    async def behaviour(request, context):
        await asyncio.sleep(60)

    handler = grpc.unary_unary_rpc_method_handler(behaviour, request_deserializer=len)

    async def scene():
        async def continuation(_):
            return handler

        interceptor = AuthInterceptor(Brief(Credentials()), REFUSALS.note)
        guarded = await interceptor.intercept_service(
            continuation, Details("/laser_vfl.v1.Peer/Greet")
        )
        context = FakeContext("")
        with pytest.raises(Aborted):
            await handling(guarded)(None, context)
        return context

    context = asyncio.run(scene())
    assert context.code is grpc.StatusCode.PERMISSION_DENIED
    assert "expired" in context.details


def test_an_error_that_is_raised_often_is_a_new_one_each_time():
    """An exception object that is raised again gets a longer traceback, which holds its frames."""

    async def expire():
        try:
            await grpc_status._in_time(asyncio.sleep(60), 0.001)
        except IdentityError as error:
            return error

    first, *others = [asyncio.run(expire()) for _ in range(3)]
    lengths = [len(list(traceback.walk_tb(e.__traceback__))) for e in (first, *others)]
    assert len(set(lengths)) == 1
    assert all(other is not first for other in others)


def test_no_module_of_the_package_keeps_an_exception_to_raise():
    kept = [name for name, value in vars(grpc_status).items() if isinstance(value, BaseException)]
    assert not kept


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        ("Socket closed", HungUp),
        ("Handshake failed: handshake failed", IdentityError),
        ("Hostname Verification Check failed.", IdentityError),
        ("failed to connect to all addresses", AddressError),
    ],
)
def test_how_a_connection_failed_is_told_by_the_type(details, kind):
    call = AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), details=details)
    assert type(error_from(call, doing="asking")) is kind


def test_a_timeout_of_our_own_is_an_internal_error(caplog):
    context = ended_with(TimeoutError("of ours"))
    assert context.code is grpc.StatusCode.INTERNAL
    assert "of ours" not in context.details


def test_who_keeps_the_log_hears_of_a_refusal():
    ended_with(errors.ContractError("two heads", hint="have one"))
    assert REFUSALS.last == ("memory", "/laser_vfl.v1.Peer/Exchange", "ContractError", "two heads")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.AddressError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.AddressError),
        (grpc.StatusCode.UNAUTHENTICATED, errors.IdentityError),
        (grpc.StatusCode.PERMISSION_DENIED, errors.IdentityError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.MismatchError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.ContractError),
    ],
)
def test_a_status_of_grpcs_own_becomes_the_nearest_error(code, kind):
    for details, said in (("first line\nsecond", "first line"), ("", code.name), (None, code.name)):
        rpc_error = AioRpcError(code, Metadata(), Metadata(), details=details)
        back = error_from(rpc_error, doing="dialling", hint="is it up?")
        assert type(back) is kind
        assert str(back) == f"dialling: {said}; is it up?"
        assert not is_ours(rpc_error)


def test_a_peer_cannot_name_a_class_that_is_not_ours():
    trailing = Metadata(("laser-vfl-error", "SystemExit"))
    rpc_error = AioRpcError(grpc.StatusCode.ABORTED, Metadata(), trailing, details="boo")
    assert type(error_from(rpc_error, doing="x")) is errors.ContractError


def test_a_cancellation_that_was_swallowed_is_raised_after_all():
    async def stubborn():
        # As gRPC does when the call has failed at the same time.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        heed_cancellation()
        await asyncio.Event().wait()

    async def run():
        heed_cancellation()
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        return task.cancelled()

    assert asyncio.run(run())


def test_who_is_refused_on_and_on_waits_for_it():
    """A hundred are free; then fifty a second are told. Another caller waits for none of them."""
    pacer = RefusalPacer()
    waits = [pacer.wait_s("shop", 7.0) for _ in range(200)]
    assert waits[:100] == [0.0] * 100
    assert waits[100:] == sorted(waits[100:])
    assert waits[-1] == pytest.approx(2.0, abs=0.05)
    assert pacer.wait_s("bank", 7.0) == 0.0
    assert pacer.wait_s("shop", 60.0) == 0.0
