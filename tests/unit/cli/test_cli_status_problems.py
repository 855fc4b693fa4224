"""What `status` and `retrain` say of a client that cannot take part in the next run."""

from laser_vfl.cli.status import problems

FULL = "naming.safetensors cannot be written (No space left on device)"


def test_a_client_that_cannot_take_part_has_a_line():
    clients = [
        {"client": "bank", "problem": None, "held_back_s": 0.0},
        {"client": "shop", "problem": FULL, "held_back_s": 19.7},
        {"client": "telco", "problem": FULL, "held_back_s": 0.0},
    ]
    assert problems({"clients": clients}) == [
        f"shop cannot take part: {FULL}; it is called again in 20 s",
        f"telco cannot take part: {FULL}",
    ]
