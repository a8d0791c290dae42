# SPDX-License-Identifier: Apache-2.0
"""Networks over the real library. `LIGHTLOOM_LIBRARY` names it; files are those of topologies/."""

from pathlib import Path

import pytest

import lightloom

SHIPPED = Path(__file__).resolve().parents[2] / "topologies"
RING = {"ring": {"hosts": 8}}


def packets(count, rate=400, delay=1_000_000):
    """So many full packets of 4,032 bytes over one cable, in picoseconds."""
    return count * 4_096 * 8_000 // rate + delay


def test_a_message_takes_its_closed_form():
    with lightloom.Network(RING) as network:
        arrived = []
        assert network.ranks == 8
        network.receive(1, 0, 40_320, tag=3, done=lambda: arrived.append(network.time))
        network.send(0, 1, 40_320, tag=3)
        assert network.run() == packets(10) and arrived == [packets(10)]
        assert network.finish() == packets(10)
        assert network.packet_hops >= 10


def test_a_ring_all_reduce_from_callbacks():
    with lightloom.Network(RING, transport={"window_packets": 100}) as network:
        ranks, left = network.ranks, {}

        def step(rank):
            left[rank] -= 1
            if left[rank]:
                exchange(rank)

        def exchange(rank):
            network.send(rank, (rank + 1) % ranks, 40_320)
            network.receive(rank, (rank - 1) % ranks, 40_320, done=lambda: step(rank))

        for rank in range(ranks):
            left[rank] = 2 * (ranks - 1)
            network.schedule(0, lambda rank=rank: exchange(rank))
        assert network.finish() == 2 * (ranks - 1) * packets(10)
        assert set(left.values()) == {0}


def test_fabric_files_settings_and_faults():
    with lightloom.Network(SHIPPED / "ring-256.yaml") as calm:
        calm.send(0, 255, 1_000_000)
        alone = calm.run()
        assert calm.ranks == 256 and alone > 0
    faults = [{"part": "n63/nic3", "at": "5us", "lasts": "100us"}]
    with lightloom.Network(SHIPPED / "ring-256.yaml", faults=faults) as network:
        network.send(0, 255, 1_000_000)
        assert network.run() > alone + 90_000_000


def test_mistakes_are_raised_where_they_were_made():
    with pytest.raises(lightloom.Refused, match="<text>:1:") as refused:
        lightloom.Network({"ring": {"hosts": 2}})
    assert refused.value.code == 2
    with pytest.raises(lightloom.Refused, match="no/such.yaml"):
        lightloom.Network("no/such.yaml")
    network = lightloom.Network(RING)
    with pytest.raises(lightloom.Refused, match="rank 9"):
        network.send(0, 9, 1)
    network.schedule(7, lambda: {}["no key"])
    with pytest.raises(KeyError, match="no key"):
        network.run()
    network.receive(0, 1, 5)
    with pytest.raises(lightloom.Refused, match="receives wait") as stalled:
        network.finish()
    assert stalled.value.code == 4
    network.close()
    network.close()
    with pytest.raises(lightloom.Refused, match="no network"):
        network.run()
