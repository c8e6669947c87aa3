"""Definitions: workflows and steps as outlast knows them: names, signatures, retry policies."""
