"""One exchange of a method's preparation, as one client does it: some send, some receive."""

import torch

from laser_vfl.client.training.training_step import StepContext
from laser_vfl.core.preparation import ExchangeStep
from laser_vfl.core.subsets import has


def exchange_step(
    context: StepContext, exchange: ExchangeStep, number: int, participants: int, own_key: bytes
) -> bool:
    """Do one exchange; return whether this client had a part in it.

    An exchange that lacks somebody is left out. Doing one again changes nothing.
    """
    me = context.learner.context.client
    if exchange.clients & ~participants or not has(exchange.clients, me):
        return False
    transport, state = context.transport, context.learner.scratch
    assert state is not None
    if me in exchange.meeting:
        partners = _others(exchange.meeting, me)
        transport.acknowledge(number, partners)
        transport.wait_for_acknowledgements(number, partners)
    receivers, senders = _others(exchange.receivers, me), _others(exchange.senders, me)
    rows: dict[int, torch.Tensor] = {}
    if me in exchange.senders:
        own = state.outgoing(exchange, context.table.inputs, transport.key_of, own_key)
        transport.send_rows(number, exchange, own, receivers)
        if exchange.is_acknowledged:
            transport.wait_for_acknowledgements(number, receivers)
        rows[me] = transport.as_received(own)
    if me in exchange.receivers:
        rows |= transport.gather_rows(number, exchange, senders)
        if exchange.is_acknowledged:
            transport.acknowledge(number, senders)
        state.incoming(exchange, rows)
    transport.flush()
    return True


def _others(clients: tuple[int, ...], me: int) -> list[int]:
    return [client for client in clients if client != me]
