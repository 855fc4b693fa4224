"""Errors across the wire: one interceptor makes a gRPC status of ours, one function undoes it."""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from laser_vfl.core import errors
from laser_vfl.core.token_bucket import Bucket
from laser_vfl.observability.audit_log import Refused
from laser_vfl.security.access import Authorizer
from laser_vfl.security.identity import Identity
from laser_vfl.transport.deadlines import NEXT_S, in_time
from laser_vfl.transport.grpc_texts import has_hung_up, is_tls_failure
from laser_vfl.transport.message_limits import MAX_BYTES

log = logging.getLogger(__name__)

_CODE_KEY = "laser-vfl-error"
_RETRY_KEY = "laser-vfl-retry-after-ms"

MIN_RETRY_S = 0.01
MAX_RETRY_DIGITS = 8

MAX_CALLERS = 1000
MAX_PACED_S = 10.0
"""How many callers are told apart, and how long one waits at most for the next refusal."""

MAX_STATUS_BYTES = 2000
"""What fits into the metadata of an answer, which gRPC limits, whatever else is in there."""

_STATUS: dict[type[errors.LaserError], grpc.StatusCode] = {
    errors.ConfigError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.DataError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ContractError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.AddressError: grpc.StatusCode.UNAVAILABLE,
    errors.IdentityError: grpc.StatusCode.PERMISSION_DENIED,
    errors.MismatchError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NameTaken: grpc.StatusCode.ALREADY_EXISTS,
    errors.NotRegistered: grpc.StatusCode.NOT_FOUND,
    errors.AlignmentOver: grpc.StatusCode.ABORTED,
    errors.AlignmentRefused: grpc.StatusCode.ABORTED,
    errors.TrainingStopped: grpc.StatusCode.ABORTED,
    errors.StateUnwritable: grpc.StatusCode.ABORTED,
    errors.NotReady: grpc.StatusCode.FAILED_PRECONDITION,
    errors.LimitExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TooManyPeople: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_BY_NAME = {kind.__name__: kind for kind in _STATUS}
REFUSALS = tuple(_BY_NAME)
"""The kinds of errors that a call can be refused with."""

_BY_STATUS: dict[grpc.StatusCode, type[errors.LaserError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.AddressError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.AddressError,
    grpc.StatusCode.CANCELLED: errors.AddressError,
    grpc.StatusCode.PERMISSION_DENIED: errors.IdentityError,
    grpc.StatusCode.UNAUTHENTICATED: errors.IdentityError,
    grpc.StatusCode.UNIMPLEMENTED: errors.MismatchError,
}

Behaviour = Callable[[Any, Any], Awaitable[Any]]


class HungUp(errors.AddressError):
    """The other side accepted the connection and closed it; a caller's own view, never sent."""


class FailedCall(Protocol):
    """What gRPC raises when a call fails, from asyncio and from threads alike."""

    def code(self) -> grpc.StatusCode:
        """How it ended."""

    def details(self) -> str | None:
        """Why, in words."""

    def trailing_metadata(self) -> Any:
        """Pairs that the other side sent with the status."""


class RefusalPacer:
    """Has a caller that is refused again and again wait for its answer.

    A refusal costs a server about as much as an answer. A caller that calls on and on, refused or
    not, would otherwise keep it busy.
    """

    def __init__(self, per_s: float = 50.0, burst: float = 100.0) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: dict[str, Bucket] = {}

    def wait_s(self, who: str, now: float) -> float:
        """Count a refusal; return after how long the caller hears of it."""
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.clear()
        bucket = self._buckets.setdefault(who, Bucket(self._per_s, burst=self._burst))
        wait_s = bucket.wait_s(now)
        bucket.take(1)
        return min(wait_s, MAX_PACED_S)


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Lets in who may call, and lets a servicer raise our errors.

    A peer never sees the text of any other error. `refused` hears who was refused what, and why.
    """

    def __init__(
        self, authorizer: Authorizer, refused: Refused, refusals: RefusalPacer | None = None
    ) -> None:
        self._authorizer = authorizer
        self._refusals = refusals
        self._refused = refused
        self._wrapped: dict[str, Any] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of a call, once for each method."""
        method = handler_call_details.method
        if method not in self._wrapped:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._wrapped[method] = self._wrap(method, handler)
        return self._wrapped[method]

    def _wrap(self, method: str, handler: Any) -> Any:
        """Wrap a handler, whatever its shape.

        gRPC reads the one message of a call before it hands the call on, and would do so for
        anybody. So every call takes a stream here, which looks the same on the wire, and is read
        when the caller has been let in.
        """
        make: Callable[..., Any] = grpc.stream_unary_rpc_method_handler
        if handler.response_streaming:
            make = grpc.stream_stream_rpc_method_handler
        behaviour = handler.stream_unary or handler.stream_stream
        if not handler.request_streaming:
            behaviour = _with_message(handler.unary_unary or handler.unary_stream)
        return make(
            self._guarded(method, behaviour),
            request_deserializer=_bounded(method, handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )

    def _guarded(self, method: str, behaviour: Behaviour) -> Behaviour:
        async def call(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            caller = None
            try:
                with self._authorizer.admit(method, context) as admission:
                    caller = admission.caller
                    if admission.lasts_s is None:
                        return await behaviour(requests, context)
                    return await _in_time(behaviour(requests, context), admission.lasts_s)
            except DecodeError:
                unreadable = errors.ContractError("a message cannot be read")
                await self._refuse(method, _named(caller, context), context, unreadable)
            except tuple(_STATUS) as error:
                await self._refuse(method, _named(caller, context), context, error)
            except (grpc.RpcError, grpc.aio.AbortError):
                raise
            except grpc.aio.BaseError as error:  # the call is over, or the server has stopped
                log.debug("%s: %s", method, error)
                raise asyncio.CancelledError from None
            except Exception:
                reference = secrets.token_hex(4)
                log.exception("internal error, ref=%s", reference)
                await context.abort(grpc.StatusCode.INTERNAL, f"internal error, ref={reference}")

        return call

    async def _refuse(
        self,
        method: str,
        who: str,
        context: grpc.aio.ServicerContext[Any, Any],
        error: errors.LaserError,
    ) -> NoReturn:
        self._refused(who, method, type(error).__name__, error.message)
        if self._refusals is not None:
            await asyncio.sleep(self._refusals.wait_s(who, time.monotonic()))
        await refuse(context, error)


def _named(caller: Identity | None, context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """Return who calls, for the audit log: an identity, or an address where there is none."""
    return caller.uri if caller else context.peer().rpartition(":")[0]


async def _in_time(call: Awaitable[Any], lasts_s: float) -> Any:
    """Let a call go on until the caller's certificate ends."""
    try:
        async with asyncio.timeout(lasts_s) as limit:
            return await call
    except TimeoutError:
        if limit.expired():
            raise errors.IdentityError(
                "the certificate has expired in the course of the call"
            ) from None
        raise


def _bounded(method: str, parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Refuse messages that are too long for a method before they are parsed."""
    if (most := MAX_BYTES.get(method)) is None:
        return parse

    def parsed(data: bytes) -> Any:
        if len(data) > most:
            raise DecodeError("a message is too long")
        return parse(data)

    return parsed


def _with_message(behaviour: Behaviour) -> Behaviour:
    """Read the one message that a call is about."""

    async def call(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        request = await in_time(context.read(), NEXT_S)
        if request is grpc.aio.EOF:
            raise errors.ContractError("no message came")
        return await behaviour(request, context)

    return call


async def refuse(context: grpc.aio.ServicerContext[Any, Any], error: errors.LaserError) -> NoReturn:
    """End a call with the status of an error."""
    kind = next(kind for kind in type(error).__mro__ if kind in _STATUS)
    metadata = [(_CODE_KEY, kind.__name__)]
    if isinstance(error, errors.LimitExceeded):
        metadata.append((_RETRY_KEY, str(math.ceil(error.retry_after_s * 1e3))))
    text = str(error).encode()[:MAX_STATUS_BYTES].decode(errors="ignore")
    await context.abort(_STATUS[kind], text, tuple(metadata))
    raise AssertionError("abort returned")


def error_from(rpc_error: FailedCall, *, doing: str, hint: str = "") -> errors.LaserError:
    """Return the error that a failed call stands for: ours if the other side raised one."""
    trailing = dict(rpc_error.trailing_metadata() or ())
    named = _BY_NAME.get(str(trailing.get(_CODE_KEY, "")))
    told = next(iter((rpc_error.details() or "").strip().splitlines()), rpc_error.code().name)
    details = errors.printable(told[:MAX_STATUS_BYTES])
    if named is errors.LimitExceeded:
        return errors.LimitExceeded(details, retry_after_s=retry_after_s(rpc_error) or MIN_RETRY_S)
    if named:
        return named(details)
    kind = _BY_STATUS.get(rpc_error.code(), errors.ContractError)
    if is_tls_failure(details):
        kind, hint = errors.IdentityError, hint or "check tls here and at the other side"
    elif kind is errors.AddressError and has_hung_up(details):
        kind = HungUp
    return kind(f"{doing}: {details}", hint=hint)


def is_ours(rpc_error: FailedCall) -> bool:
    """Tell whether the other side answered, rather than the network failed."""
    return any(key == _CODE_KEY for key, _ in rpc_error.trailing_metadata() or ())


def heed_cancellation() -> None:
    """Raise the cancellation of this task, if there is one, instead of how a call ended.

    When both come at the same time, gRPC reports the end of the call alone, and whoever goes on
    after it would never end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def retry_after_s(rpc_error: FailedCall) -> float | None:
    """Return how long to wait when too much was asked; None when that is not the reason."""
    if rpc_error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    return _told_retry_s(dict(rpc_error.trailing_metadata() or ()))


def _told_retry_s(trailing: Mapping[str, Any]) -> float | None:
    value = str(trailing.get(_RETRY_KEY, ""))
    if not value.isascii() or not value.isdigit() or len(value) > MAX_RETRY_DIGITS:
        return None
    return max(int(value) / 1e3, MIN_RETRY_S)
