"""Operations: what workflow code can request, one primitive per file.

All work the same way: an operation is requested under a key. If history has that key, history answers. If not, the
intent is recorded first, and executed only when it is durable.
"""
