"""The engine: runs workflow code, records what it did, and goes on after a crash as if nothing
had happened. It talks to a store through the port alone."""
