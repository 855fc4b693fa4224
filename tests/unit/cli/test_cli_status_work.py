"""What `status` says while the clients of a federation align or read their tables."""

from laser_vfl.cli.status import work_lines


def client(name, work=None, *, up=True):
    return {"client": name, "up": up, "work": work}


def aligning(done, total, left_s):
    return {"work": "alignment", "done": done, "total": total, "left_s": left_s}


def test_it_says_how_far_all_are_together_and_how_long_the_slowest_needs():
    clients = [client("bank", aligning(30, 100, 20.0)), client("shop", aligning(20, 100, 300.0))]
    assert work_lines({"clients": clients}) == ["aligning: 25% done, 5 min left"]


def test_those_who_read_and_those_who_align_are_told_apart():
    reading = {"work": "tables", "done": 1, "total": 2, "left_s": 3.0}
    clients = [client("bank", aligning(1, 4, 9.0)), client("shop", reading), client("telco")]
    assert work_lines({"clients": clients}) == [
        "aligning: 25% done, 9 s left",
        "reading tables: 50% done, 3 s left",
    ]


def test_without_work_there_is_nothing_to_say():
    gone = client("bank", aligning(0, 0, 0.0), up=False)
    strange = client("shop", {"work": "mining", "done": 1, "total": 2, "left_s": 3.0})
    assert work_lines({"clients": [gone, strange, client("telco")]}) == []
