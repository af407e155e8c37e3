"""Reverb's messages, where Reverb keeps them."""

from reverie.cc import patterns_pb2, schema_pb2

__all__ = ["patterns_pb2", "schema_pb2"]
