"""Predictions: the models served, requests, and the peers that are asked."""
