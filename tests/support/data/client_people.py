"""People of several clients, aligned in one process: each client has digests under its own key."""

import numpy as np

from laser_vfl.client.tables.pseudonym_table import PseudonymTable
from laser_vfl.client.tables.table_listing import People, listing
from laser_vfl.core.alignment import align
from laser_vfl.data import blind_ids

ROSTER = ("bank", "shop", "club", "fund")


def digests_at(client, ids):
    """Return digests of ids under a client's own key."""
    return blind_ids(list(ids), f"the very own key of {client}".encode(), "trial")


def listed(client, *tables):
    """Return a client's list of the people in some tables."""
    return listing(*(People(list(ids), digests_at(client, ids)) for ids in tables))


def points_of(ids):
    """Return what everybody's scalar would make of ids: the same for the same id at all."""
    return digests_at("everybody", ids)


def pseudonym_tables(ids_by_client, id="alignment-1", run="run-1"):
    """Align the people of the first clients of the roster; return how each names them."""
    members = ROSTER[: len(ids_by_client)]
    lists = [listed(name, ids) for name, ids in zip(members, ids_by_client, strict=True)]
    points = [points_of(people.ids) for people in lists]
    return [
        PseudonymTable(
            id,
            run,
            members,
            bytes([k]) * 32,
            lists[k].digests,
            points[k],
            told.groups,
            told.rows,
        )
        for k, told in enumerate(align(points))
    ]


def name(group, place):
    """Return a name as it is sent."""
    return np.array([(group, place)], dtype=[("group", "<u4"), ("place", "<u8")]).tobytes()
