from django.db import models


class Item(models.Model):
    name = models.TextField(unique=True)
    stock = models.PositiveIntegerField()


class Order(models.Model):
    item = models.ForeignKey(Item, models.CASCADE)
    amount = models.PositiveIntegerField()
    state = models.TextField(default="placed")

    @property
    def run_id(self) -> str:
        return f"order-{self.pk}"


class Booking(models.Model):
    """What was taken out of stock, once for each order."""

    order = models.ForeignKey(Order, models.CASCADE)
