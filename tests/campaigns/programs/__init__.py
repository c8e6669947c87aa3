"""Random workflow programs, random faults, and an independent model of what may be observed.

::

    strategies ──▶ program (data) ──▶ interpreter ──▶ outlast on a store, in virtual time
                       │                  │              ▲ acts from outside, faults
                       │                  ▼              │
                       └──▶ model ◀── ledger ◀────── runner
                              └──▶ what was promised and did not hold

`program` is the syntax, `strategies` draws it, `interpreter` runs it, `ledger` keeps what happened
outside of the store, `runner` runs one case to its end, `model` judges it, `shrinking` makes a case
that fails small, and `rendering` shows it as Python.
"""
