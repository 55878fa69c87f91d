"""Signing up, signing in and out, and another password."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.rendering import show
from apps.console.visit import public_page


@public_page()
def sign_in(request: HttpRequest) -> HttpResponse:
    """Show the page."""
    return show(request, "pending_plain")


@public_page()
def sign_up(request: HttpRequest) -> HttpResponse:
    """Show the page."""
    return show(request, "pending_plain")


@public_page()
def sign_out(request: HttpRequest) -> HttpResponse:
    """Show the page."""
    return show(request, "pending_plain")


@public_page()
def forgot_password(request: HttpRequest) -> HttpResponse:
    """Show the page."""
    return show(request, "pending_plain")


PATHS = [
    path("sign-in", sign_in, name="sign_in"),
    path("sign-up", sign_up, name="sign_up"),
    path("sign-out", sign_out, name="sign_out"),
    path("forgot-password", forgot_password, name="forgot_password"),
]
