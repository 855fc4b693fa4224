"""Labels that a client randomises: what the daemon says of it, and which scores stay at home."""

import json
import math

from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Site

TRAINING = {"batch_size": 16, "epochs": 2, "representation_dim": 4}
LABELS = {"epsilon": 2.0, "classes": ["red", "green", "blue"]}


def test_scores_on_true_labels_stay_at_home_unless_they_may_be_told(site: Site) -> None:
    federation = Federation(site, ["bank", "shop"], TRAINING, privacy={"labels": LABELS})
    said = "labels of the training table are randomised: epsilon 2 for each label"
    assert all(said in client.stderr for client in federation.clients.values())
    manifest = federation.manifest("bank")
    assert manifest["privacy"] == {"labels": {"epsilon": 2.0}}
    own = json.loads((site.path / "bank-state" / "scores.json").read_text())
    overall = own["overall"]["accuracy"]
    assert overall == manifest["scores"]["overall"]["accuracy"]

    federation.wait_whole()
    told = federation.status("bank")["model"]
    assert (told["score"], told["scores"]) == (None, {})
    with federation.predictor("bank") as predictor:
        predictions = predictor.predict(federation.ids)
    assert predictions.blocks.all()
    assert all(map(math.isnan, predictions.expected_scores))

    assert federation.clients["bank"].terminate() == 0
    data = {"train": "bank_train.csv", "test": "bank_test.csv", "id": "id", "label": "kind"}
    labels = {**LABELS, "tell_scores": True}
    config = site.client_config("bank", data=data, privacy={"labels": labels})
    federation.clients["bank"] = site.start_client(config)
    federation.clients["bank"].wait_for_served()
    federation.wait_whole()
    assert federation.status("bank")["model"]["score"] == overall
    with federation.predictor("bank") as predictor:
        predictions = predictor.predict(federation.ids)
    assert not any(map(math.isnan, predictions.expected_scores))
