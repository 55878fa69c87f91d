"""Request log, activity and traffic in the Django admin."""

from apps.logs.admin import activity, request_log

__all__ = ["activity", "request_log"]
