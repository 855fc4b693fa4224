"""Metrics pages, the catalogue of metrics, and Prometheus."""
