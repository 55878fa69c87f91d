"""Logging: structlog over the standard library; lines for people in development, JSON in production."""

from __future__ import annotations

import logging.config

import structlog

from apps.kernel.secrets.redaction import redact_forms


def logging_config(*, development: bool) -> None:
    """Configure structlog and the standard loggers of this process."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[structlog.typing.Processor] = (
        # Tracebacks without the values of variables: those are tokens and people's words.
        [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)]
        if development
        else [
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "line": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "foreign_pre_chain": shared,
                    "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer, _redacted],
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"handlers": ["stderr"], "level": "INFO"},
            "loggers": {
                # Errors are logged where they happen; this would repeat them for every answer.
                "django.request": {"level": "CRITICAL"},
                # Any client can cause such lines, with a traceback; `apps.kernel.rest.errors` counts them instead.
                "django.security": {"level": "CRITICAL"},
                "httpx": {"level": "WARNING"},
                "celery.app.trace": {"level": "WARNING"},
            },
        }
    )


def _redacted(logger: object, method: str, line: str) -> str:
    """Take credentials out of a line as it is written, tracebacks and other libraries' words included."""
    return redact_forms(line)
