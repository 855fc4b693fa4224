"""Random streams: apart from each other, and the same for ever."""

from itertools import product

import numpy as np
import torch

from laser_vfl.core.randomness import RandomStream, random_permutation, random_words, torch_seed


def test_streams_of_other_seeds_purposes_moments_and_clients_never_meet():
    keys = product([0, 7], RandomStream, [0, 1, 2**40], [0, 1, 63])
    streams = [
        random_words(8, seed=seed, stream=stream, counter=counter, client=client)
        for seed, stream, counter, client in keys
    ]
    words = np.concatenate(streams)
    assert len(np.unique(words)) == len(words) == 8 * 2 * len(RandomStream) * 3 * 3


def test_a_longer_stream_begins_like_a_shorter_one():
    key = {"seed": 3, "stream": RandomStream.TASKS, "counter": 9, "client": 2}
    long = random_words(1000, **key)
    assert np.array_equal(long[:37], random_words(37, **key))


def test_the_streams_never_change():
    """A release with other words would train another model, or split a federation in two."""
    golden = {
        (0, RandomStream.SCHEDULE, 0, 0): [
            0xD037F8C3F9A1D176,
            0xC057419B4C210765,
            0xABF13115117B0065,
        ],
        (7, RandomStream.TASKS, 123, 3): [
            0xF274393CB8890DE8,
            0xB1213069D157EF30,
            0x6F06BEE19782309C,
        ],
        (2**63 - 1, RandomStream.FUSION_NOISE, 2**40, 63): [
            0xCC1DD6ADC23B0100,
            0x29A3128EEB7CDDA2,
            0x21E0B17A4900CB56,
        ],
    }
    for (seed, stream, counter, client), words in golden.items():
        found = random_words(3, seed=seed, stream=stream, counter=counter, client=client)
        assert found.tolist() == words
    assert [int(stream) for stream in RandomStream] == [*range(1, 11), 16, *range(20, 26)]
    order = random_permutation(8, seed=7, stream=RandomStream.SCHEDULE, counter=2)
    assert order.tolist() == [5, 4, 2, 6, 3, 1, 0, 7]
    assert (
        torch_seed(seed=7, stream=RandomStream.INITIAL_PARAMETERS, client=1) == 1922772348266049152
    )


def test_a_torch_seed_is_one_that_torch_takes():
    for counter in range(50):
        seed = torch_seed(seed=1, stream=RandomStream.FUSION_NOISE, counter=counter)
        torch.Generator().manual_seed(seed)
        assert 0 <= seed < 2**63


def test_permutations_are_of_all_items():
    for num in (0, 1, 17):
        order = random_permutation(num, seed=1, stream=RandomStream.SCHEDULE, counter=0)
        assert sorted(order.tolist()) == list(range(num))


def test_every_order_of_three_is_as_likely():
    counts = {}
    for counter in range(1200):
        order = random_permutation(3, seed=1, stream=RandomStream.SCHEDULE, counter=counter)
        key = tuple(order.tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 6
    # Chi-square with 5 degrees of freedom, p = 0.001.
    assert sum((n - 200) ** 2 / 200 for n in counts.values()) < 20.52
