"""`reverie.samples` under the name that its module has in Reverb."""

from reverie.samples import ReplaySample, SampleInfo

__all__ = ["ReplaySample", "SampleInfo"]
