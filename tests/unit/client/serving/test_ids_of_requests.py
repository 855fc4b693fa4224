"""Ids that came with features: which of them are aligned, and what is said of the others."""

from types import SimpleNamespace

import numpy as np

from laser_vfl.client.serving import unaligned_ids
from laser_vfl.client.serving.limits.alignment_quota import AlignmentQuota
from laser_vfl.client.serving.unaligned_ids import UnalignedIds
from laser_vfl.data import blind_ids

ALIGNED = ("person-1", "person-2")


def blind(ids):
    return blind_ids(ids, b"a secret of the clients alone", "trial")


KNOWN = {digest.tobytes() for digest in blind(ALIGNED)}
PSEUDONYMS = SimpleNamespace(
    is_new=lambda digests: np.array([digest.tobytes() not in KNOWN for digest in digests])
)
MODEL = SimpleNamespace(pseudonyms=PSEUDONYMS, row_index=SimpleNamespace(people=[]))


def unaligned(quota):
    return UnalignedIds(blind, b"order", lambda: True, quota=quota)


def remember(ids, whose, caller="crm", model=MODEL):
    return whose.remember(model, ids, blind(ids), caller)


def test_without_a_quota_nothing_is_aligned_and_that_is_said():
    ids = unaligned(None)
    found = remember(["person-1", "new-1", "new-2", "new-2"], ids)
    assert found.num == 2
    assert "serving.align_requests is off" in found.reason
    assert ids.num_to_align == 0
    assert len(ids.listed(MODEL)) == 0
    assert remember(ALIGNED, ids) is None


def test_who_is_forgotten_counts_like_a_stranger_and_is_not_aligned(tmp_path):
    def are_forgotten(ids):
        return np.array([id == "gone" for id in ids], dtype=bool)

    quota = AlignmentQuota(tmp_path / "quota.json", 2)
    for whose in (
        UnalignedIds(blind, b"order", lambda: True, quota=None, are_forgotten=are_forgotten),
        UnalignedIds(blind, b"order", lambda: True, quota=quota, are_forgotten=are_forgotten),
    ):
        said = [remember([id, "new-1", "new-2"], whose) for id in ("gone", "stranger")]
        assert said[0] is not None
        assert said[0].num >= 1
        assert "gone" not in whose.listed(MODEL).ids
    other = UnalignedIds(
        blind,
        b"order",
        lambda: True,
        quota=AlignmentQuota(tmp_path / "other.json", 2),
        are_forgotten=are_forgotten,
    )
    assert remember(["gone"], other) is None
    assert other.num_to_align == 1, "the count does not tell it either"
    assert remember(["stranger"], other) is None
    assert list(other.listed(MODEL).ids) == ["stranger"]
    assert remember(["stranger-2"], other).num == 1, "it has used up a place of the quota"


def test_nobody_needs_an_alignment_where_digests_are_compared():
    model = SimpleNamespace(pseudonyms=None)
    assert remember(["new-1"], unaligned(None), model=model) is None


def test_each_application_has_as_many_aligned_as_its_quota_allows(tmp_path):
    ids = unaligned(AlignmentQuota(tmp_path / "quota.json", 3))
    assert remember(["new-1", "new-2"], ids) is None
    found = remember(["new-2", "new-3", "new-4", "new-5"], ids)
    assert found.num == 2
    assert "3 new ids have been aligned for this application" in found.reason
    assert ids.num_to_align == 3
    assert remember(["new-1", "new-2", "new-3"], ids) is None, "these are remembered already"
    assert remember(["new-4"], ids, caller="web") is None
    assert ids.num_to_align == 4
    assert sorted(ids.listed(MODEL).ids) == ["new-1", "new-2", "new-3", "new-4"]


def test_there_is_an_end_to_what_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(unaligned_ids, "MAX_REMEMBERED", 2)
    ids = unaligned(AlignmentQuota(tmp_path / "quota.json", 100))
    found = remember(["new-1", "new-2", "new-3"], ids)
    assert found.num == 1
    assert "2 ids wait to be aligned already" in found.reason
    assert ids.num_to_align == 2


def test_what_cannot_be_counted_is_not_aligned(tmp_path):
    ids = unaligned(AlignmentQuota(tmp_path / "missing" / "quota.json", 3))
    found = remember(["new-1"], ids)
    assert found.num == 1
    assert "cannot be written" in found.reason
    assert ids.num_to_align == 0
