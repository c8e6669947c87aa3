"""A shop with an API: FastAPI, SQLAlchemy, and orders that outlast the process."""
