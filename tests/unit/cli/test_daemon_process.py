"""What a daemon's log leaves out, and what it shows."""

import logging

import grpc.aio
import pytest
from grpc._cython.cygrpc import ExecuteBatchError

from laser_vfl.cli.daemon_process import is_worth_a_line


@pytest.fixture
def records():
    """What gRPC's logger lets through to handlers."""
    logger, found = logging.getLogger("grpc._cython.cygrpc"), []
    handler = logging.Handler()
    handler.emit = found.append
    logger.addFilter(is_worth_a_line)
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)
    logger.removeFilter(is_worth_a_line)


def log_failure(error):
    """Log an exception as gRPC does when a servicer's method ends with it."""
    try:
        raise error
    except type(error):
        logging.getLogger("grpc._cython.cygrpc").exception("a method has failed")


def test_a_caller_that_hangs_up_leaves_no_traceback(records):
    assert issubclass(ExecuteBatchError, grpc.aio.InternalError)
    log_failure(ExecuteBatchError("Failed 'execute_batch'"))
    assert records == []


def test_other_failures_and_lines_are_shown(records):
    log_failure(ValueError("a mistake of ours"))
    logging.getLogger("grpc._cython.cygrpc").error("ExecuteBatchError in words alone")
    assert len(records) == 2
