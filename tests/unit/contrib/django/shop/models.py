"""What a shop keeps beside its runs."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order; `paid` counts how often it was paid."""

    name = models.TextField(unique=True)
    paid = models.IntegerField(default=0)


class Payment(models.Model):
    """One row for each time that somebody has paid."""

    order = models.TextField()
    amount = models.IntegerField()


class Delivery(models.Model):
    """Belongs to an order; Django lets the database look at that only when it commits."""

    order = models.ForeignKey(Order, models.CASCADE)
