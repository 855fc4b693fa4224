"""Messages are as large as what is expected in them, whatever the settings."""

import pytest

from laser_vfl.client.tables.pseudonym_table import NAME
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.message_limits import (
    ASKED_ID_BYTES,
    MESSAGE_OVERHEAD_BYTES,
    asking_options,
    exchange_options,
    most_rows,
    peer_message_bytes,
    peer_server_options,
)
from laser_vfl.transport.protocol import CHUNK_BYTES, MAX_IDS, MAX_TENSOR_BYTES

RECEIVE, SEND = "grpc.max_receive_message_length", "grpc.max_send_message_length"


def settings(width: int, batch_size: int, precision: str = "float32") -> TrainingSettings:
    keys = {"representation_dim": width, "batch_size": batch_size, "wire_precision": precision}
    return TrainingSettings.model_validate({**keys, "epochs": 1})


@pytest.mark.parametrize(
    ("precision", "row"),
    [
        ("float32", 4096),
        ("float16", 2048),
        ("bfloat16", 2048),
        ("int8", 1024 + 2),
        ("int4", 512 + 2),
    ],
)
def test_a_frame_holds_a_batch_and_no_more(precision: str, row: int) -> None:
    wide = settings(1024, 4096, precision)
    expected = 4096 * row + MESSAGE_OVERHEAD_BYTES
    assert dict(exchange_options(wide, 4)) == {RECEIVE: expected, SEND: expected}
    assert dict(peer_server_options(peer_message_bytes(wide, 4)))[RECEIVE] == expected


def test_small_settings_leave_room_for_questions_and_lists() -> None:
    small = settings(4, 8)
    assert dict(exchange_options(small, 4))[RECEIVE] == 4 * 8 * 4 + MESSAGE_OVERHEAD_BYTES
    for known in (small, None):
        assert peer_message_bytes(known, 4) == CHUNK_BYTES
    assert MAX_IDS * ASKED_ID_BYTES <= CHUNK_BYTES
    assert max(DIGEST_BYTES, NAME.itemsize) == ASKED_ID_BYTES


def test_masked_gradients_take_eight_bytes() -> None:
    class Masked(TrainingSettings):
        masked_gradients: bool = True

    masked = Masked(representation_dim=1024, batch_size=4096, epochs=1)
    assert dict(exchange_options(masked, 4))[RECEIVE] == 4096 * 1024 * 8 + MESSAGE_OVERHEAD_BYTES


@pytest.mark.parametrize("width", [1, 32, 65_536])
def test_answers_to_the_longest_question_fit(width: int) -> None:
    asked = settings(width, 16)
    rows = most_rows(asked, 4)
    assert 1 <= rows <= MAX_IDS
    assert rows * width * 4 <= MAX_TENSOR_BYTES
    limit = dict(asking_options(asked, 4))[RECEIVE]
    assert rows * (width * 4 + 4) <= limit <= MAX_TENSOR_BYTES + 2 * MESSAGE_OVERHEAD_BYTES
