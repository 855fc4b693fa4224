"""Whole configuration files: what loads, and how one that does not is refused."""

from pathlib import Path

import pytest
from config_texts import CLIENT, COORDINATOR
from pydantic import BaseModel

from laser_vfl.client.config import ClientConfig
from laser_vfl.config.address import Address
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import ConfigError, ExitCode


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load_client(text: str | bytes) -> ClientConfig:
    path = Path("bank.yaml")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(path, ClientConfig)


def refusal(text: str | bytes, model: type[BaseModel] = ClientConfig) -> str:
    path = Path("bank.yaml")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(path, model)
    assert caught.value.exit_code == ExitCode.CONFIG
    assert caught.value.hint
    line = str(caught.value)
    assert len(line.splitlines()) == 1
    assert "pydantic" not in line
    return line


def edited(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def test_the_documented_coordinator_loads() -> None:
    Path("conf").mkdir()
    Path("conf/coordinator.yaml").write_text(COORDINATOR)
    config = load_config(Path("conf/coordinator.yaml"), CoordinatorConfig)
    assert config.listen == Address("127.0.0.1", 7000)
    assert config.state == Path("conf/coordinator-state")
    assert config.clients == ["bank", "shop", "telco"]
    assert config.training.seed == 7
    assert (config.start, config.tls, config.heartbeat_timeout_s) == (None, None, 10)


def test_the_documented_client_loads() -> None:
    config = load_client(CLIENT)
    assert config.data.train == Path("bank_train.csv")
    assert config.id_secret_file == Path("id.secret")
    assert config.model.hidden == [64, 64]
    assert (config.optimizer.name, config.optimizer.lr) == ("adam", 0.001)
    assert (config.device, config.threads, config.precision) == ("auto", "auto", "float32")


def load_coordinator(text: str) -> CoordinatorConfig:
    Path("coordinator.yaml").write_text(text)
    return load_config(Path("coordinator.yaml"), CoordinatorConfig)


def test_ids_are_compared_by_points_unless_the_coordinator_says_otherwise() -> None:
    assert load_coordinator(COORDINATOR).alignment == "ecdh"
    for scheme in ("ecdh", "hmac"):
        assert load_coordinator(f"{COORDINATOR}alignment: {scheme}\n").alignment == scheme


def test_a_coordinator_limits_how_many_people_a_client_brings() -> None:
    assert load_coordinator(COORDINATOR).max_people == 10_000_000
    for limit in (1, 100_000_000):
        assert load_coordinator(f"{COORDINATOR}max_people: {limit}\n").max_people == limit
    for limit in (0, 100_000_001):
        with pytest.raises(ConfigError, match="expected an integer from 1 to 100000000"):
            load_coordinator(f"{COORDINATOR}max_people: {limit}\n")


@pytest.mark.parametrize("line", ["", "id_secret_file:\n"])
def test_a_client_needs_no_secret_of_its_own(line: str) -> None:
    config = load_client(edited(CLIENT, "id_secret_file: id.secret\n", line))
    assert config.id_secret_file is None


def test_a_client_limits_its_alignments() -> None:
    assert load_client(CLIENT).alignments_per_day == 100
    for limit in (1, 100_000):
        assert load_client(f"{CLIENT}alignments_per_day: {limit}\n").alignments_per_day == limit


@pytest.mark.parametrize("limit", ["0", "-1", "100001", "1.5", "2.0", "true", "'3'", "none"])
def test_a_limit_that_is_none(limit: str) -> None:
    line = refusal(f"{CLIENT}alignments_per_day: {limit}\n")
    start = "bank.yaml:18:1: alignments_per_day: expected an integer from 1 to 100000, got "
    assert line.startswith(start)
    assert line.endswith(" such as 100")


def test_a_key_can_be_located_later() -> None:
    config = load_client(CLIENT)
    assert config.where("data.id") == "bank.yaml:11:3: data.id"
    assert config.where("model.hidden") == "bank.yaml:14:30: model.hidden"
    assert config.where("data.features") == "bank.yaml:8:1: data.features"
    assert config.where("threads") == "bank.yaml:1:1: threads"


def test_places_do_not_make_configurations_differ() -> None:
    config = load_client(CLIENT)
    built = ClientConfig.model_validate(config.model_dump())
    assert built == config == load_client("# moved\n" + CLIENT)
    assert built.where("data.id") == "data.id"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "lr: 0.001",
            "lr: fast",
            'bank.yaml:15:25: optimizer.lr: expected a number > 0, got "fast"; '
            "write a positive number such as 0.001",
        ),
        (
            "lr: 0.001",
            "lr: true",
            "bank.yaml:15:25: optimizer.lr: expected a number > 0, got true; "
            "write a positive number such as 0.001",
        ),
        (
            "lr: 0.001",
            "lrr: 1",
            "bank.yaml:15:25: optimizer.lrr: unknown key; did you mean lr?",
        ),
        (
            "lr: 0.001",
            "learning_rate: 1",
            "bank.yaml:15:25: optimizer.learning_rate: unknown key; "
            "allowed here: name, lr, momentum, weight_decay, schedule, lr_floor",
        ),
        (
            "name: adam",
            "name: admm",
            'bank.yaml:15:13: optimizer.name: expected one of sgd, adam, adamw, got "admm"; '
            "did you mean adam?",
        ),
        (
            "[64, 64]",
            "[64, big]",
            "bank.yaml:14:43: model.hidden[1]: expected an integer from 1 to 65536, "
            'got "big"; write an integer such as 64',
        ),
        (
            "federation: churn",
            "federaton: churn",
            "bank.yaml:1:1: federaton: unknown key; did you mean federation?",
        ),
        (
            "state: ./bank-state\n",
            "",
            "bank.yaml:1:1: state: this key is missing; add it, for example state: ./bank-state",
        ),
        (
            "  id: customer_id\n",
            "",
            "bank.yaml:8:1: data.id: this key is missing; add it, for example id: customer_id",
        ),
        (
            "name: bank",
            "name: bank\nname: shop",
            "bank.yaml:3:1: name: this key is already on line 2; keep one of the two",
        ),
        (
            "id: customer_id",
            "id: 7",
            "bank.yaml:11:3: data.id: expected the name of a column, got 7; "
            'put it in quotes, as in "7"',
        ),
        (
            "label: churned",
            "label: churned\n  features: [age, churned]",
            'bank.yaml:13:19: data.features[1]: "churned" is the label column and cannot be a '
            "feature; remove it from the list",
        ),
        (
            "label: churned",
            "label: churned\n  features: [age]\n  exclude: [notes]",
            "bank.yaml:14:3: data.exclude: cannot be used together with features; "
            "keep one of the two",
        ),
        (
            "lr: 0.001",
            "momentum: 0.9",
            "bank.yaml:15:25: optimizer.momentum: adam has no momentum; remove it or use name: sgd",
        ),
        (
            "advertise: 127.0.0.1:7001",
            "advertise: 0.0.0.0:7001",
            'bank.yaml:4:1: advertise: "0.0.0.0:7001" is not an address that others can dial; '
            "write a host name or IP address of this machine that they can reach",
        ),
        (
            "listen: 127.0.0.1:7001\nadvertise: 127.0.0.1:7001",
            "listen: 0.0.0.0:7001",
            'bank.yaml:3:1: listen: "0.0.0.0:7001" listens on every interface, and peers cannot '
            "dial that; add advertise: with the host:port at which they reach this client",
        ),
    ],
)
def test_a_client_that_is_wrong(old: str, new: str, line: str) -> None:
    assert refusal(edited(CLIENT, old, new)) == line


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "epochs: 20",
            "epoch: 20",
            "bank.yaml:9:3: training.epoch: unknown key; did you mean epochs?",
        ),
        (
            "[bank, shop, telco]",
            "[bank, bank]",
            'bank.yaml:4:17: clients[1]: "bank" is already in the list; name each client once',
        ),
        (
            "seed: 7",
            "seed: 7\nstart: {quorum: 4, after_s: 1}",
            "bank.yaml:11:9: start.quorum: expected at most 3, the number of clients, got 4; "
            "write an integer from 1 to 3",
        ),
        (
            "[bank, shop, telco]",
            "[]",
            "bank.yaml:4:1: clients: expected a list of 1 to 64, got an empty list; "
            "write a list such as [bank, shop, telco]",
        ),
        (
            "seed: 7",
            "seed: 7\nalignment: ecdsa",
            'bank.yaml:11:1: alignment: expected one of ecdh, hmac, got "ecdsa"; '
            "did you mean ecdh?",
        ),
    ],
)
def test_a_coordinator_that_is_wrong(old: str, new: str, line: str) -> None:
    assert refusal(edited(COORDINATOR, old, new), CoordinatorConfig) == line


def test_the_first_problem_in_the_file_is_the_one_reported() -> None:
    text = edited(CLIENT, "device: auto", "device: tpu")
    assert refusal(text).startswith("bank.yaml:16:1: device: ")
    assert refusal(edited(text, "name: bank", "name: B A")).startswith("bank.yaml:2:1: name: ")


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        ("positive: yes\n  task: regression", "data.positive"),
        ("class_weights: balanced\n  task: regression", "data.class_weights"),
        ("features: [customer_id]", "data.features[0]"),
        ("features: []", "data.features"),
    ],
)
def test_data_keys_that_contradict_each_other(keys: str, at: str) -> None:
    assert f": {at}: " in refusal(edited(CLIENT, "label: churned", f"label: churned\n  {keys}"))


def test_label_mistakes() -> None:
    assert ": data.label: " in refusal(edited(CLIENT, "label: churned", "label: customer_id"))
    assert ": data.positive: " in refusal(edited(CLIENT, "label: churned", "positive: yes"))


def test_a_floor_needs_a_schedule() -> None:
    assert ": optimizer.lr_floor: " in refusal(edited(CLIENT, "lr: 0.001", "lr_floor: 0.1"))
    config = load_client(edited(CLIENT, "lr: 0.001", "lr_floor: 0.1, schedule: cosine"))
    assert config.optimizer.lr_floor == 0.1


def test_noise_needs_a_bound() -> None:
    assert ": privacy.noise: " in refusal(CLIENT + "privacy: {noise: 0.5}\n")
    config = load_client(CLIENT + "privacy: {noise: 0.5, clip: 1.0, delta: 1.0e-6}\n")
    assert (config.privacy.noise, config.privacy.clip, config.privacy.delta) == (0.5, 1.0, 1e-6)


def test_private_labels_say_what_a_label_can_be() -> None:
    config = load_client(CLIENT + "privacy: {labels: {epsilon: 2, classes: [0, yes, 1.5]}}\n")
    assert config.privacy.labels is not None
    assert (config.privacy.labels.epsilon, config.privacy.labels.tell_scores) == (2.0, False)
    assert config.privacy.labels.classes == ["0", "yes", "1.5"]
    task = edited(CLIENT, "label: churned", "label: churned\n  task: regression")
    config = load_client(task + "privacy: {labels: {epsilon: 0.5, bounds: [-1, 2.5]}}\n")
    assert config.privacy.labels is not None
    assert config.privacy.labels.bounds == [-1.0, 2.5]


@pytest.mark.parametrize(
    ("data", "labels", "at"),
    [
        ("label: churned", "{epsilon: 0}", "privacy.labels.epsilon"),
        ("label: churned", "{epsilon: 21}", "privacy.labels.epsilon"),
        ("label: churned", "{classes: [a, b]}", "privacy.labels.epsilon"),
        ("label: churned", "{epsilon: 1, classes: [a]}", "privacy.labels.classes"),
        ("label: churned", "{epsilon: 1, bounds: [1]}", "privacy.labels.bounds"),
        ("label: churned", "{epsilon: 1, bounds: [2, 2]}", "privacy.labels.bounds"),
        ("label: churned", "{epsilon: 1, bounds: [0, .inf]}", "privacy.labels.bounds[1]"),
        (
            "label: churned",
            "{epsilon: 1, bounds: [0, 1], classes: [a, b]}",
            "privacy.labels.bounds",
        ),
        ("exclude: []", "{epsilon: 1}", "privacy.labels"),
        ("label: churned\n  task: regression", "{epsilon: 1}", "privacy.labels"),
        ("label: churned\n  task: multiclass", "{epsilon: 1}", "privacy.labels"),
        ("label: churned\n  task: binary", "{epsilon: 1, bounds: [0, 1]}", "privacy.labels.bounds"),
        (
            "label: churned\n  task: binary",
            "{epsilon: 1, classes: [a, b, c]}",
            "privacy.labels.classes",
        ),
        (
            "label: churned\n  class_weights: balanced",
            "{epsilon: 1, bounds: [0, 1]}",
            "data.class_weights",
        ),
        ("label: churned\n  positive: a", "{epsilon: 1, bounds: [0, 1]}", "data.positive"),
    ],
)
def test_private_labels_that_do_not_fit(data: str, labels: str, at: str) -> None:
    text = edited(CLIENT, "label: churned", data) + f"privacy: {{labels: {labels}}}\n"
    assert f": {at}: " in refusal(text)


def test_optional_keys_may_be_left_empty() -> None:
    config = load_client(edited(CLIENT, "label: churned", "label:") + "tls:\n")
    assert config.data.label is None
    assert config.tls is None


def test_the_name_of_the_file_is_shown_as_given(tmp_path: Path) -> None:
    Path("conf").mkdir()
    Path("conf/a.yaml").write_text("x: 1")
    for given in (Path("conf/a.yaml"), tmp_path / "conf" / "a.yaml", Path("conf/../conf/a.yaml")):
        with pytest.raises(ConfigError) as caught:
            load_config(given, ClientConfig)
        assert caught.value.where == f"{given}:1:1: x"


def test_files_that_cannot_be_read() -> None:
    Path("closed.yaml").mkdir()
    for name, message in (("none.yaml", "no such file"), ("closed.yaml", "is a directory")):
        with pytest.raises(ConfigError, match=f"^{name}: {message}; ."):
            load_config(Path(name), ClientConfig)
    with pytest.raises(ConfigError, match=r"cannot be read: file name too long; ."):
        load_config(Path("a" * 300), ClientConfig)


def test_a_file_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match=r"^bank.yaml: may not be read by this user; ."):
        load_config(Path("bank.yaml"), ClientConfig)


def test_a_file_that_is_too_large() -> None:
    assert refusal("a: " + "x" * (1 << 20)).startswith("bank.yaml: is larger than 1 MiB; ")


def test_a_file_that_is_not_utf8() -> None:
    assert refusal(b"name: bank\nstate: caf\xe9\n").startswith("bank.yaml:2:11: this is not UTF-8")
    assert refusal("name: bank".encode("utf-16")).startswith("bank.yaml:1:1: this is not UTF-8")
    assert load_client(b"\xef\xbb\xbf" + CLIENT.encode()) == load_client(CLIENT)
