"""What pays: training measured under several strategies, the causes by subtraction, a verdict in words.

| module | what it holds |
| --- | --- |
| `ask` | what the caller asked for, read and refused early |
| `record` | what was measured, as plain values |
| `cause` | where a step's time goes, by subtraction of measured runs |
| `verdict` | the record in plain words |
| `table`, `chart`, `report` | the record for the eye |
| `trial`, `probe` | the program of a child process: one training run, one short measuring run |
| `child` | a fresh process with a deadline |
| `compare` | `dure.compare` |

Only `trial` and `probe` import JAX: a comparison never touches the devices of the process that asks for it.
"""
