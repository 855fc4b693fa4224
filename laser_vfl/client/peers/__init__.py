"""Streams to the other clients, and what a step sends and receives over them."""
