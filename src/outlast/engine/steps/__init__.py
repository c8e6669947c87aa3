"""Steps: how the user's step functions are executed, and what happens when their process dies."""
