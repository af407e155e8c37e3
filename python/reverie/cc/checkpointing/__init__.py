"""The messages of checkpoints, where Reverb keeps them."""
