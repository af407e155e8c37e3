"""Round trips of single calls."""
