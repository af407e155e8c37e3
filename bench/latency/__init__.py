"""Round trips under load, and how long locks are held."""
