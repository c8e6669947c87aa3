import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from orders.models import Item, Order
from orders.workflows import checkout
from outlast.contrib.django import runs


@csrf_exempt
def place(request: HttpRequest) -> JsonResponse:
    """The order and its run are there together, or neither of them."""
    given = json.loads(request.body)
    with transaction.atomic():
        item, _ = Item.objects.get_or_create(name=given["item"], defaults={"stock": 10})
        order = Order.objects.create(item=item, amount=given["amount"])
        runs.start(checkout(order.pk, order.amount), id=order.run_id)
        if given["amount"] > 1000:
            transaction.set_rollback(True)
            return JsonResponse({"error": "too much"}, status=422)
    return JsonResponse({"id": order.pk}, status=201)


def show(_: HttpRequest, pk: int) -> JsonResponse:
    order = Order.objects.select_related("item").get(pk=pk)
    return JsonResponse({"state": order.state, "stock": order.item.stock})


@csrf_exempt
async def approve(request: HttpRequest, pk: int) -> JsonResponse:
    """An async view."""
    order = await Order.objects.aget(pk=pk)
    await runs.get(order.run_id).asignal("approval", json.loads(request.body)["approved"])
    return JsonResponse({}, status=202)
