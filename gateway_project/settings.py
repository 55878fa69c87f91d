"""All settings, on one page, from the environment. `docs/operations.md` lists the variables."""

# length: all settings are on one page, so that none is looked for elsewhere

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlsplit

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from apps.kernel.store_urls import celery_options, is_cluster_url, read_sentinel_url
from apps.oauth import resources
from apps.organizations.plans import PLANS
from gateway_project.admin_site import theme
from gateway_project.configuration import data_directory, env
from gateway_project.configuration.store_settings import DatabaseSettings, django_redis_cache
from gateway_project.configuration.telemetry_settings import TelemetrySettings
from gateway_project.configuration.web_origins import CorsOrigins, PasskeyDomain
from gateway_project.embedded.valkey import DEFAULT_CACHE_BYTES
from gateway_project.http.limits import ClientLimits
from gateway_project.observability import metric_files
from gateway_project.observability.log import logging_config
from gateway_project.processes import memory_tuning

# Before the apps are loaded.
memory_tuning.collect_less_often()
# Before any app makes a metric.
metric_files.install()

BASE_DIR = data_directory.PROJECT
# As messages name them.
SERVER_COMMAND, MANAGE_COMMAND = data_directory.SERVER_COMMAND, data_directory.MANAGE_COMMAND
VERSION = "0.1.0"

GATEWAY_MODE = env.choice("GATEWAY_MODE", (env.DEVELOPMENT, env.PRODUCTION), env.DEVELOPMENT)
DEVELOPMENT = GATEWAY_MODE == env.DEVELOPMENT
GATEWAY_HOME = data_directory.path()
PORT = env.integer("PORT", 8000, 1, 65535)

# --- secrets ------------------------------------------------------------------------------------------------------
SECRET_KEY = env.secret("SECRET_KEY", GATEWAY_MODE, GATEWAY_HOME)
# API keys are stored as HMAC-SHA-256 under this pepper; changing it makes every key unknown.
API_KEY_PEPPER = env.secret("API_KEY_PEPPER", GATEWAY_MODE, GATEWAY_HOME)
# Fernet keys, newest first; provider credentials are encrypted with the first and read with any.
ENCRYPTION_KEYS = env.secret("ENCRYPTION_KEYS", GATEWAY_MODE, GATEWAY_HOME, env.fernet_key).split(",")

# --- who may reach it ---------------------------------------------------------------------------------------------
DEBUG = False
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ("localhost", "127.0.0.1", "[::1]", "testserver") if DEVELOPMENT else ())
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")
# A command beside a running server uses that server's port, unless PORT says otherwise.
_stores = data_directory.read_store_urls()
_own_url = f"http://127.0.0.1:{PORT}" if env.text("PORT") else _stores.get("server_url", "")
PUBLIC_URL = env.text("PUBLIC_URL", _own_url or f"http://127.0.0.1:{PORT}").rstrip("/")
# The domain of passkeys, and the origins whose pages may use them.
PASSKEY_DOMAIN = PasskeyDomain.of_environment(PUBLIC_URL)
_BEHIND_TLS = urlsplit(PUBLIC_URL).scheme == "https"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _BEHIND_TLS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _BEHIND_TLS else None
SECURE_HSTS_SECONDS = 31_536_000 if _BEHIND_TLS else 0
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
# For the admin's pages: scripts are the server's own files, and none is made from text. Alpine and charts set styles of
# elements.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'", "'unsafe-inline'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}
# `/metrics` asks for this bearer token when it is set; in production it is, unless everybody may read them.
METRICS_TOKEN = env.text("METRICS_TOKEN")
METRICS_PUBLIC = env.boolean("METRICS_PUBLIC", default=False)

# Limits of the web process; read here so that a wrong value stops every process.
CLIENT_LIMITS, CORS_ORIGINS = ClientLimits.of_environment(), CorsOrigins.of_environment()

# --- apps ---------------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "unfold",
    "gateway_project.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "oauth2_provider",
    "django_prometheus",
    "apps.kernel",
    "apps.console",
    "apps.organizations",
    "apps.keys",
    "apps.oauth",
    "apps.billing",
    "apps.guardrails",
    "apps.logs",
    "apps.catalog",
    "apps.mcp_servers",
    "apps.provider_bills",
    "apps.log_sinks",
    "apps.limits",
    "apps.alerts",
    "apps.gateway",
    "apps.responses",
    "apps.batches",
    "gateway_project",
]
MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "csp.middleware.CSPMiddleware",
    "apps.kernel.rest.middleware.SecurityHeadersMiddleware",
    "apps.kernel.rest.middleware.RequestMiddleware",
    "apps.kernel.rest.middleware.CompressionMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "apps.kernel.rest.middleware.LazyMessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]
CSRF_FAILURE_VIEW = "apps.kernel.rest.errors.forged"
ROOT_URLCONF = "gateway_project.urls"
WSGI_APPLICATION = "gateway_project.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["django.templatetags.i18n"],
            "libraries": {"numbers": "apps.kernel.pages.number_formats"},
        },
    }
]
AUTH_USER_MODEL = "organizations.User"
_VALIDATION = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_VALIDATION}.UserAttributeSimilarityValidator", "OPTIONS": {"user_attributes": ("email", "name")}},
    *({"NAME": f"{_VALIDATION}.{name}Validator"} for name in ("MinimumLength", "CommonPassword", "NumericPassword")),
]
APPEND_SLASH = False
# Where the sign-in page of the admin leads when nothing else was asked for.
LOGIN_REDIRECT_URL = "/admin/"
LANGUAGE_CODE, TIME_ZONE, USE_I18N, USE_TZ = "en", "UTC", True, True
# The languages of pages and e-mails, by their own names; `locale` has their texts (docs/adding-a-language.md). The API
# and the admin are in English.
LANGUAGES = [
    *(("ar", "العربية"), ("de", "Deutsch"), ("en", "English"), ("es", "Español"), ("fr", "Français")),
    *(("ja", "日本語"), ("zh-hans", "简体中文")),
]
LOCALE_PATHS = [BASE_DIR / "locale"]
LANGUAGE_COOKIE_NAME, LANGUAGE_COOKIE_AGE = "gateway-language", 365 * 24 * 3_600
STATIC_URL = "/static/"
STATICFILES_FINDERS = ["gateway_project.static_files.ServedFilesFinder"]
# Development serves the files from where they are; `prepare` collects them for production.
WHITENOISE_USE_FINDERS = DEVELOPMENT
STATIC_ROOT = None if DEVELOPMENT else GATEWAY_HOME / "static"
if not DEVELOPMENT:
    # Hashed names, which browsers may keep; beside each file its gzip, which the API reference loads in a quarter of
    # the time. Source maps are not loaded.
    STORAGES = {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": "gateway_project.static_files.HashedFilesStorage"},
    }
    WHITENOISE_SKIP_COMPRESS_EXTENSIONS = ("png", "jpg", "gif", "webp", "woff", "woff2", "gz", "map")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

UNFOLD = theme.UNFOLD

# --- stores -------------------------------------------------------------------------------------------------------
DATABASE_URL = env.store_url("DATABASE_URL", ("postgresql", "postgres"), _stores.get("database_url", ""))
# One server, a cluster by some of its nodes, or the primary that sentinels name.
_REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
REDIS_URL = env.store_url("REDIS_URL", _REDIS_SCHEMES, _stores.get("redis_url", ""))
# Where organizations' answers, vectors, thinking and streams are kept, which may evict; by default where the rest is.
_kept_cache = "" if env.text("REDIS_URL") else _stores.get("cache_url", "")
CACHE_URL = env.store_url("CACHE_URL", _REDIS_SCHEMES, _kept_cache) or REDIS_URL
# Bytes that all organizations keep there, and one by its plan; 0 keeps nothing.
CACHE_BYTES = env.integer("CACHE_BYTES", DEFAULT_CACHE_BYTES, 0, 1024**5)
CACHE_BYTES_BY_PLAN = {
    "free": env.integer("CACHE_BYTES_FREE", PLANS["free"].cache_bytes, 0, 1024**5),
    "pro": env.integer("CACHE_BYTES_PRO", PLANS["pro"].cache_bytes, 0, 1024**5),
    "enterprise": env.integer("CACHE_BYTES_ENTERPRISE", PLANS["enterprise"].cache_bytes, 0, 1024**5),
}
# In how many parts of a cluster, by organization, what admission and settlement touch is kept; a server has one part.
_shards = env.integer("VALKEY_SHARDS", 16 if is_cluster_url(REDIS_URL) else 1, 1, 64)
VALKEY_SHARDS = env.shard_count(_shards, REDIS_URL)
# Whether an answer waits until the store has its record, and has it on the disk.
RECORD_BEFORE_ANSWER = env.choice("VALKEY_SYNC", ("second", "always"), "second") == "always"
# Connections of one process; 0 opens one per request instead.
DATABASE_POOL_SIZE = env.integer("DATABASE_POOL_SIZE", 10, 0, 200)
# Seconds of a statement in a web worker, and those for a connection to be made; 0 statement seconds: no limit, neither
# of the server's nor of ours.
DATABASE_STATEMENT_TIMEOUT = env.integer("DATABASE_STATEMENT_TIMEOUT", 30, 0, 3600)
DATABASE_CONNECT_TIMEOUT = env.integer("DATABASE_CONNECT_TIMEOUT", 5, 2, 60)
# Seconds for which the cached policy of a key stays valid while the database is unreachable.
POLICY_MAX_STALE = env.integer("POLICY_MAX_STALE", 900, 0, 86_400)
# Read replicas, and the seconds by which what they answer may be old; past them the primary is read.
DATABASE_REPLICA_URLS = env.replica_urls("DATABASE_REPLICA_URL")
DATABASE_REPLICA_MAX_LAG = env.integer("DATABASE_REPLICA_MAX_LAG", 5, 1, 3600)

_databases = DatabaseSettings(DATABASE_URL, DATABASE_REPLICA_URLS, DATABASE_POOL_SIZE, DATABASE_CONNECT_TIMEOUT)
DATABASES, REPLICA_ALIASES = _databases.databases(), _databases.replica_aliases

# Bytes of the disk that each web worker takes when it starts, for records while the store takes none; and how many
# there must be free for all to be well.
RECORD_SPOOL_SIZE = env.integer("RECORD_SPOOL_SIZE", 16 * 1024 * 1024, 0, 1024**3)
DISK_FREE_ALARM = env.integer("DISK_FREE_ALARM", 256 * 1024 * 1024, 0, 1024**4)

# Where days of the log are moved that are older than a week; without it PostgreSQL keeps all of them.
CLICKHOUSE_URL = env.url_of_extra("CLICKHOUSE_URL", "clickhouse_connect", "clickhouse")

# Time that a store which hangs may cost a request; a connection that it closed is opened again once.
_redis_budget = {
    "socket_connect_timeout": 0.5,
    "socket_timeout": 0.5,
    "max_connections": 1024,
    "retry": Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
}
_decoding = {**_redis_budget, "decode_responses": True}
CACHES = {
    # For libraries, such as the admin's search. It stays in the process: entries are pickled, and a store must not be
    # able to hand the gateway a pickle.
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    # The gateway's own structures, through `apps.kernel.valkey.redis`, and what organizations may grow.
    "store": django_redis_cache(REDIS_URL, _decoding),
    "cache_store": django_redis_cache(CACHE_URL, _decoding),
}

# --- catalog ------------------------------------------------------------------------------------------------------
# An operator's data files, merged into the product's.
CATALOG_DIR = env.directory("CATALOG_DIR")
# Public price lists that are read daily, each `KIND=PLACE`; the kinds of proposals that are applied without a person.
CATALOG_PRICE_LISTS = env.words("CATALOG_PRICE_LISTS")
CATALOG_APPLY = env.words("CATALOG_APPLY")

# Administration keys that read the providers' own bills; without one its bill is not read. A day's difference of more
# percent is an alert.
OPENAI_ADMIN_KEY = env.text("OPENAI_ADMIN_KEY")
ANTHROPIC_ADMIN_KEY = env.text("ANTHROPIC_ADMIN_KEY")
OPENROUTER_MANAGEMENT_KEY = env.text("OPENROUTER_MANAGEMENT_KEY")
BILL_ALERT_PERCENT = env.integer("BILL_ALERT_PERCENT", 2, 1, 100)

# --- scheduled work -----------------------------------------------------------------------------------------------
# CELERY_BROKER_URL, else Celery's own database beside the gateway's, with its own word for a unix socket.
CELERY_BROKER_URL = env.celery_broker_url(REDIS_URL, database=1)
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, object] = {"max_connections": 200, "visibility_timeout": 3600}
if CELERY_BROKER_URL.startswith("sentinel://"):
    CELERY_BROKER_TRANSPORT_OPTIONS |= celery_options(read_sentinel_url(REDIS_URL))
    if REDIS_URL.startswith("rediss"):
        CELERY_BROKER_USE_SSL = {"ssl_cert_reqs": "required"}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_SERIALIZER, CELERY_ACCEPT_CONTENT = "json", ["json"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

# --- sessions and management endpoints ----------------------------------------------------------------------------
REST_KNOX = {
    "AUTH_HEADER_PREFIX": "Bearer",
    "TOKEN_TTL": timedelta(days=30),
    "AUTO_REFRESH": True,
    "MIN_REFRESH_INTERVAL": 3600,
}
REST_FRAMEWORK = {
    # Each endpoint states its authentication; one that does not rejects all requests.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    # Answers are JSON: neither a query nor a suffix asks for another form.
    "URL_FORMAT_OVERRIDE": None,
    "FORMAT_SUFFIX_KWARG": None,
    "EXCEPTION_HANDLER": "apps.kernel.rest.errors.answer_exception",
    "UNAUTHENTICATED_USER": None,
    "COERCE_DECIMAL_TO_STRING": True,
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    # Number of proxies in front whose `X-Forwarded-For` is trusted when callers are distinguished by address.
    "NUM_PROXIES": CLIENT_LIMITS.proxies,
}

# Programs that a person signs in (docs/oauth.md): authorization codes with PKCE alone, and nothing stored in clear.
OAUTH2_PROVIDER_APPLICATION_MODEL = "oauth.OAuthClient"
OAUTH2_PROVIDER_GRANT_MODEL = "oauth.AuthorizationCode"
OAUTH2_PROVIDER_ACCESS_TOKEN_MODEL = "oauth.AccessToken"  # noqa: S105 - the name of a table
OAUTH2_PROVIDER_REFRESH_TOKEN_MODEL = "oauth.RefreshToken"  # noqa: S105 - the name of a table
# Whether a program may be known by its description at an https address (docs/oauth.md); off where the gateway cannot
# reach the web, programs register themselves instead.
OAUTH_CLIENT_DOCUMENTS = env.boolean("OAUTH_CLIENT_DOCUMENTS", default=True)
OAUTH2_PROVIDER = {
    # Authorization codes and refresh tokens; the library's own class takes passwords, devices and more.
    "OAUTH2_SERVER_CLASS": "oauthlib.oauth2.WebApplicationServer",
    "OAUTH2_VALIDATOR_CLASS": "apps.oauth.authorization.Validator",
    "OAUTH2_BACKEND_CLASS": "apps.oauth.authorization.RequestReader",
    "ACCESS_TOKEN_GENERATOR": "apps.oauth.tokens.new_access_token",
    "REFRESH_TOKEN_GENERATOR": "apps.oauth.tokens.new_refresh_token",
    "CIMD_METADATA_FETCHER": "apps.oauth.registration.GuardedFetcher",
    "CIMD_ENABLED": OAUTH_CLIENT_DOCUMENTS,
    "SCOPES": resources.SCOPES,
    # Seconds: of a code, of an access token, and of a refresh token beyond its access token's end.
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": 60,
    "ACCESS_TOKEN_EXPIRE_SECONDS": 3_600,
    "REFRESH_TOKEN_EXPIRE_SECONDS": 30 * 24 * 3_600,
    "REFRESH_TOKEN_REUSE_PROTECTION": True,
    "ALLOW_LOCALHOST_LOOPBACK": True,
    # For the library's own pages, which are not mounted; where browsers are led, `apps.oauth.redirects` says.
    "ALLOWED_REDIRECT_URI_SCHEMES": ["https"],
    "OIDC_ISS_ENDPOINT": PUBLIC_URL,
    **dict.fromkeys(
        (
            *("COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT", "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT"),
            *("COMPLIANT_BCP_RFC9700_PKCE_METHOD", "COMPLIANT_BCP_RFC9700_PKCE_REQUIRED"),
            *("COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT", "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE"),
            *("COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS", "COMPLIANT_BCP_RFC9700_REFRESH_TOKEN"),
            *("COMPLIANT_BCP_RFC9700_REDIRECT_URI_MATCHING", "COMPLIANT_BCP_RFC9700_REDIRECT_URI_SCHEME"),
        ),
        True,
    ),
}

# The document of the API; `gateway_project.openapi` puts it together.
SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.0",
    "COMPONENT_SPLIT_REQUEST": True,
    "COMPONENT_SPLIT_PATCH": False,
    "POSTPROCESSING_HOOKS": [],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "SORT_OPERATIONS": False,
}

# --- payments and e-mail ------------------------------------------------------------------------------------------
# Without a secret key payments are off; without a webhook secret there is no webhook. Several secrets: any of them.
STRIPE_SECRET_KEY = env.text("STRIPE_SECRET_KEY")
STRIPE_PUBLISHABLE_KEY = env.text("STRIPE_PUBLISHABLE_KEY")
STRIPE_WEBHOOK_SECRETS = env.words("STRIPE_WEBHOOK_SECRET")
# The price (49 USD a month) of the pro plan there.
STRIPE_PRO_PRICE = env.text("STRIPE_PRO_PRICE")
# The issuer of invoices, and the first part of their numbers.
INVOICE_ISSUER_NAME = env.text("INVOICE_ISSUER_NAME", "Model gateway")
INVOICE_ISSUER_ADDRESS = env.text("INVOICE_ISSUER_ADDRESS").replace("\\n", "\n")
INVOICE_ISSUER_EMAIL = env.text("INVOICE_ISSUER_EMAIL")
INVOICE_ISSUER_TAX_ID = env.text("INVOICE_ISSUER_TAX_ID")
INVOICE_NUMBER_PREFIX = env.text("INVOICE_NUMBER_PREFIX", "INV-")
# Where it is asked, when that is not Stripe itself.
STRIPE_API_BASE = env.text("STRIPE_API_BASE").rstrip("/")
# Allowed sign-ups: everyone, only invited people, or no one.
SIGN_UP = env.choice("SIGN_UP", ("open", "invite", "closed"), "open" if DEVELOPMENT else "invite")
# How many organizations a user may own; operators raise it for a person in the admin.
ORGANIZATIONS_PER_USER = env.integer("ORGANIZATIONS_PER_USER", 3, 0, 1_000_000)
# Whether an e-mail address must be confirmed before its user can sign in.
EMAIL_VERIFICATION = env.boolean("EMAIL_VERIFICATION", default=not DEVELOPMENT)
# Whether operators need a passkey or an authenticator app before they may use the admin.
OPERATOR_SECOND_FACTOR = env.boolean("OPERATOR_SECOND_FACTOR", default=not DEVELOPMENT)
# Written to the log until it says how it is sent.
vars().update(env.email("EMAIL_URL"))
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "gateway@localhost")

# --- the gateway --------------------------------------------------------------------------------------------------
# Largest request body in bytes; past it 413.
BODY_LIMIT = DATA_UPLOAD_MAX_MEMORY_SIZE = CLIENT_LIMITS.body
# Largest file of lines for a batch, which is never in memory as a whole.
FILE_UPLOAD_LIMIT = CLIENT_LIMITS.file
# Bytes of large requests and answers held in memory at a time, by one worker and for one organization; beyond them new
# large requests get 503 and 429.
WORKER_BYTES_IN_FLIGHT = env.integer("WORKER_BYTES_IN_FLIGHT", 512 * 1024 * 1024, 1024, 1024**4)
ORGANIZATION_BYTES_IN_FLIGHT = env.integer("ORGANIZATION_BYTES_IN_FLIGHT", 128 * 1024 * 1024, 1024, 1024**4)
# Seconds that a client may take to send its request's body; past them 408.
BODY_TIMEOUT = CLIENT_LIMITS.body_timeout
# Seconds: to connect, to the first byte of the answer, between two bytes of it, and for all of it; past them 504.
UPSTREAM_CONNECT_TIMEOUT = env.seconds("UPSTREAM_CONNECT_TIMEOUT", 5)
UPSTREAM_FIRST_BYTE_TIMEOUT = env.seconds("UPSTREAM_FIRST_BYTE_TIMEOUT", 120)
UPSTREAM_IDLE_TIMEOUT = env.seconds("UPSTREAM_IDLE_TIMEOUT", 120)
UPSTREAM_TOTAL_TIMEOUT = env.seconds("UPSTREAM_TOTAL_TIMEOUT", 900, high=86_400)
# Requests a minute by plan, where the operator wants others than the plan's own; 0 is no limit.
RATE_LIMITS = {plan: env.optional_integer(f"RATE_LIMIT_{plan.upper()}", 0, 10_000_000) for plan in PLANS}
FREE_MODELS_PER_MINUTE = env.integer("FREE_MODELS_PER_MINUTE", 20, 0, 10_000_000)
# USD that an organization may spend in each process while its credits cannot be checked; 0 rejects requests then.
OFFLINE_ALLOWANCE_USD = env.usd("OFFLINE_ALLOWANCE_USD", "1.00", high=10_000)
# Share of requests that try out a provider of which nothing fresh is known.
ROUTING_EXPLORATION = env.share("ROUTING_EXPLORATION", 0.01)
# Bytes that an organization may have stored of responses, and a project of files.
STORED_BYTES_PER_ORGANIZATION = env.integer("STORED_BYTES_PER_ORGANIZATION", 10 * 1024**3, 0, 1024**5)
FILE_BYTES_PER_PROJECT = env.integer("FILE_BYTES_PER_PROJECT", 10 * 1024**3, 0, 1024**5)
# Bytes of an organization's files, by plan, where the operator wants others than the plan's own; and bytes of its
# files, and of its stored responses and conversations, on the free plan without credits.
FILE_BYTES = {plan: env.optional_integer(f"FILE_BYTES_{plan.upper()}", 0, 1024**5) for plan in PLANS}
STORED_BYTES_WITHOUT_CREDITS = env.integer("STORED_BYTES_WITHOUT_CREDITS", 100 * 1024**2, 0, 1024**5)
# Batches that an organization may have in progress, and their lines together, likewise by plan.
BATCHES_IN_PROGRESS = {
    plan: env.optional_integer(f"BATCHES_IN_PROGRESS_{plan.upper()}", 1, 1_000_000) for plan in PLANS
}
BATCH_LINES_IN_PROGRESS = {
    plan: env.optional_integer(f"BATCH_LINES_IN_PROGRESS_{plan.upper()}", 1, 10**9) for plan in PLANS
}
# Seconds that a link to a made picture holds, and bytes of the pictures behind an organization's links.
IMAGE_LINK_SECONDS = env.integer("IMAGE_LINK_SECONDS", 3600, 60, 86_400)
IMAGE_LINK_BYTES_PER_ORGANIZATION = env.integer("IMAGE_LINK_BYTES_PER_ORGANIZATION", 1024**3, 0, 1024**5)
# Lines of batches that are answered at a time by one Celery worker; one organization may have four fifths of them.
BATCH_LINES_AT_ONCE = env.integer("BATCH_LINES_AT_ONCE", 20, 1, 1000)
# Whether lines go to providers' own batch APIs, where these are cheaper.
NATIVE_BATCHES = env.boolean("NATIVE_BATCHES", default=True)
# Seconds until a silent worker's background responses and lines of batches are taken over.
BACKGROUND_LEASE = env.seconds("BACKGROUND_LEASE", 20, high=600)
# Seconds of silence towards a streaming client before a comment line keeps the connection alive.
HEARTBEAT_INTERVAL = env.seconds("HEARTBEAT_INTERVAL", 10, high=300)
# Lifts the address guard for URLs that tenants give.
GATEWAY_ALLOW_PRIVATE_ADDRESSES = env.boolean("GATEWAY_ALLOW_PRIVATE_ADDRESSES", default=False)
# Whether organizations on the plan free may add servers of their own.
OWN_SERVERS_ON_FREE_PLAN = env.boolean("OWN_SERVERS_ON_FREE_PLAN", default=False)

# Traces and metrics over OTLP; off unless a collector is named.
TELEMETRY = TelemetrySettings.of_environment()

# Whether each request is printed to the terminal in which the server was started.
REQUEST_LINES = env.boolean("REQUEST_LINES", default=False)

LOGGING_CONFIG = None
logging_config(development=DEVELOPMENT)
