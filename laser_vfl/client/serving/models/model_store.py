"""The models of this client on disk, each with the pseudonyms of its people."""

import torch

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.own_models import OwnModels
from laser_vfl.client.serving.models.published_model import PublishedModel, load_published
from laser_vfl.client.storage.state_directory import StateDirectory, unusable
from laser_vfl.client.tables.pseudonym_store import AreGone, PseudonymStore
from laser_vfl.client.tables.pseudonym_table import PseudonymTable


class ModelStore:
    """Loads models onto the device that they compute on. All of it is for a worker thread."""

    def __init__(
        self, config: ClientConfig, state: StateDirectory, own: OwnModels, device: torch.device
    ) -> None:
        self._config = config
        self._state = state
        self._own = own
        self._device = device
        self._pseudonyms = PseudonymStore(state)

    @property
    def path(self) -> str:
        """The state directory, to be named in errors."""
        return str(self._state.path)

    @property
    def published_run(self) -> str | None:
        """The run of the model that was published last."""
        return self._state.published_run

    def has(self, run: str) -> bool:
        """Tell whether there is a model of a run."""
        return self._state.has_model(run)

    def publish(self, run: str) -> None:
        """Have the model of a run served, also after a restart."""
        self._state.publish(run)

    def load(self, run: str) -> PublishedModel:
        """Return the model of a run; raises why it cannot be used."""
        return load_published(self._config, self._state, run, self._own, self._device)

    def load_pseudonyms(self, model: PublishedModel, are_gone: AreGone) -> PseudonymTable | None:
        """Return how peers know the people of a model, without those to forget.

        None if peers know them by digests.
        """
        pseudonyms = self._pseudonyms.purge(model.run, are_gone)
        if pseudonyms is None and model.alignment == "ecdh":
            directory = self._state.model_directory(model.run)
            raise unusable(directory, "naming.safetensors is missing")
        return pseudonyms

    def write_pseudonyms(self, pseudonyms: PseudonymTable) -> None:
        """Write the pseudonyms of a run, in place of older ones."""
        self._pseudonyms.write(pseudonyms)

    def forget_people(self, are_gone: AreGone) -> None:
        """Remove people to forget from the pseudonyms of all runs."""
        self._pseudonyms.purge_all(are_gone)
