"""The torture: a server under load and faults, and a checker that follows every confirmed item (`./dev torture --help`).

- `run` puts a run together; `schedule` says which fault comes when; `report` prints.
- `server`, `proxy`, `faults` (with faults.c) are what is tortured, and what with; `watch` looks at its memory, descriptors, threads.
- `starved` says when a process got no processor: what was late then was not the fault of what is tested.
- `loads` are the clients, in processes of their own. What they sent and what was confirmed they write to `ledger` files, before
  and after each call.
- `model` says of each table which items must be there, which may, and which must not; `checker` compares with what is there.
"""
