"""Operations: what workflow code can ask for, one primitive per file.

Each is read the same way: it is asked for under a key; if history has seen that key, history
answers; if not, its intent is recorded, and only then does anything happen in the world.
"""
