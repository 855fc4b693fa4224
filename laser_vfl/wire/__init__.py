"""How things cross the network: tensors, channels, servers, TLS, limits, errors as gRPC status."""
