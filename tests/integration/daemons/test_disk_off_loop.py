"""No daemon writes to its disk on its event loop: a slow disk would hold up whoever calls it."""

import pytest

from tests.support.daemons.harness import Site, free_address
from tests.support.daemons.loop_watch import ON_LOOP
from tests.support.data.people import People

ROSTER = ["bank", "shop"]
PROGRAM = ("tests.support.daemons.loop_watch",)


@pytest.mark.timeout(240)
def test_no_file_is_written_on_the_event_loop(site: Site) -> None:
    """In a dry run, two trainings and predictions, with every log there is."""
    people = People(90)
    config = site.coordinator_config(ROSTER, {"epochs": 3})
    config["listen"] = site.address = free_address()
    path = site.write("coordinator", config)
    coordinator = site.run(
        "coordinator", "coordinator", "run", "--config", path.name, program=PROGRAM
    )
    coordinator.wait_ready()
    clients = {}
    for name in ROSTER:
        people.write(site.path, name, p_hold=1.0, test_share=0.3)
        data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
        file = site.client_config(name, data={**data, "label": "kind"})
        clients[name] = site.start_client(file, program=PROGRAM)
    first = {name: client.wait_for_served() for name, client in clients.items()}
    retrain = ["retrain", "--coordinator", site.address, "--seed", "3", *site.tls_options]
    assert site.run("retrain", *retrain).wait_exit() == 0
    for name, client in clients.items():
        client.wait_for_served(other_than=first[name])
    with clients["bank"].predictor() as predictor:
        predictor.predict([f"person-{i:05d}" for i in range(63, 90)])
    for process in (coordinator, *clients.values()):
        assert process.terminate() in (0, 130, 143)
        said = [line for line in process.stderr.splitlines() if ON_LOOP in line]
        assert not said
