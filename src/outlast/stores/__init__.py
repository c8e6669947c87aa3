"""Stores, one package per database. A package holds the store and, where the database can do it,
the queue, because the database that has the state has the queue. They never see each other."""
