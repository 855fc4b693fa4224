"""The gRPC service: decode a message, call a rule, encode the answer."""
