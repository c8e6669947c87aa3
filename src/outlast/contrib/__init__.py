"""Leaf packages: outlast in terms of what an application has already."""
