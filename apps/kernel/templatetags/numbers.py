"""Filters of numbers, for templates of every app."""

from __future__ import annotations

from django import template
from django.utils.safestring import SafeString

from apps.kernel.pages.number_formats import mark_numbers

register = template.Library()


@register.filter
def numbers(text: object) -> SafeString:
    """Mark the English numbers of a text, for the page's script to write them in the reader's locale."""
    return mark_numbers(str(text))
