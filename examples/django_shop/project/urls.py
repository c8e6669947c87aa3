from django.urls import path
from orders import views

urlpatterns = [
    path("orders", views.place),
    path("orders/<int:pk>", views.show),
    path("orders/<int:pk>/approve", views.approve),
]
