"""A client daemon and a coordinator that answer from a script, on a real server on loopback."""

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import numpy as np

from laser_vfl.v1 import coordinator_pb2 as coordinator
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorServicer, add_CoordinatorServicer_to_server
from laser_vfl.v1.prediction_pb2_grpc import PredictionServicer, add_PredictionServicer_to_server

ROSTER = ("bank", "shop", "telco")


def response_to(ids, *, run="run-1", classes=("a", "b"), kind="text"):
    """Predict the last class, from bank and shop; ids that start with "?" are not known."""
    failed = [text.startswith("?") or not text.strip() for text in ids]
    probabilities = np.tile(np.linspace(0.1, 0.9, len(classes), dtype="<f4"), (len(ids), 1))
    return pb.PredictResponse(
        run=run,
        task="multiclass",
        classes=classes,
        class_kind=kind,
        roster=ROSTER,
        blocks=[0 if bad else 0b011 for bad in failed],
        class_places=[0 if bad else len(classes) - 1 for bad in failed],
        probabilities=probabilities.tobytes(),
        errors=[
            pb.SampleError(place=place, message="=not held here")
            for place, bad in enumerate(failed)
            if bad
        ],
        score_name="accuracy",
        scores=[pb.SubsetScore(blocks=0b011, score=0.75), pb.SubsetScore(blocks=0b111)],
        peers=[pb.PeerAnswer(client="shop"), pb.PeerAnswer(client="telco", problem="too slow")],
    )


def regression_to(ids):
    """Predict 0.5, 1.5, ... from bank alone; ids that start with "?" are not known."""
    failed = [text.startswith("?") for text in ids]
    return pb.PredictResponse(
        run="run-1",
        task="regression",
        roster=ROSTER,
        blocks=[0 if bad else 0b001 for bad in failed],
        values=[place + 0.5 for place in range(len(ids))],
        errors=[pb.SampleError(place=place) for place, bad in enumerate(failed) if bad],
        score_name="mse",
    )


class FakePrediction(PredictionServicer):
    """Answers by `answer`, or ends calls as `abort` says."""

    def __init__(self):
        self.requests = deque(maxlen=10)
        self.lock = threading.Lock()
        self.answer = lambda request: response_to(request.ids)
        self.abort = None
        self.status = pb.ClientStatus(client="bank", federation="churn")
        self.alignment = pb.AlignResponse(client="bank", roster=ROSTER, members=ROSTER)
        self.num_aligned = 0

    def Predict(self, request, context):
        """Answer, or end the call."""
        with self.lock:
            self.requests.append(request)
        self._perhaps_abort(context)
        return self.answer(request)

    def GetClientStatus(self, request, context):
        """Say what was set."""
        return self.status

    def Align(self, request, context):
        """Say what was set, or end the call."""
        self.num_aligned += 1
        self._perhaps_abort(context)
        return self.alignment

    def _perhaps_abort(self, context):
        if self.abort:
            code, details, trailing = self.abort
            context.set_trailing_metadata(trailing)
            context.abort(code, details)


class FakeCoordinator(CoordinatorServicer):
    """Has the statuses that are asked for one after another; the last one stays."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.seeds = []

    def Retrain(self, request, context):
        """Take the seed, or draw 99."""
        self.seeds.append(request.seed if request.HasField("seed") else None)
        seed = request.seed if request.HasField("seed") else 99
        return coordinator.RetrainResponse(seed=seed, waiting_for=["shop"])

    def GetStatus(self, request, context):
        """Return the next status."""
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


@contextmanager
def served(prediction=None, coordinator=None, credentials=None):
    """Serve, and give the address."""
    server = grpc.server(ThreadPoolExecutor(8))
    if prediction:
        add_PredictionServicer_to_server(prediction, server)
    if coordinator:
        add_CoordinatorServicer_to_server(coordinator, server)
    address = "127.0.0.1:0"
    if credentials:
        port = server.add_secure_port(address, credentials.for_server())
    else:
        port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
