"""The server program that Reverb calls reverb_server: ``python -m reverie.server_executable.server_main`` (docs/server.md)."""
