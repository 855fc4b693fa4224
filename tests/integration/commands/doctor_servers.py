"""Small servers for `doctor` to diagnose: a thread each, with TLS or without."""

import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

from laser_vfl.config.address import Address

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def server_context(name: Path, trust: Path, *, alpn=("h2",)):
    """What a daemon with these files shows, and demands."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(name.with_suffix(".pem"), name.with_suffix(".key"))
    context.load_verify_locations(trust)
    context.verify_mode = ssl.CERT_REQUIRED
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


@contextmanager
def serving(context=None, greeting=SETTINGS):
    """Serve until the end of the block; `greeting` is what everybody gets, None is to hang up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, context, greeting))
        thread.start()
        try:
            yield Address("127.0.0.1", listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener, context, greeting):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with suppress(OSError), connection:
            connection.settimeout(2)
            stream = context.wrap_socket(connection, server_side=True) if context else connection
            with stream:
                if greeting is not None:
                    stream.sendall(greeting)
                    while stream.recv(100):
                        pass
