"""For authors of stores and queues: the conformance kit, a stateful test against the memory store, fault
injection, simulation, and a checker that finds broken promises in recorded evidence."""
