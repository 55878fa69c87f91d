"""Providers, models, and their mappings: columns and constraints.

Facts come from the data files and are rewritten by `load_catalog`; operations (`active`, `priority`, `price_overrides`,
`retiring_on`, `retired_on`) belong to operators and are never touched by it. The price history only grows.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.catalog.offers import MODES, STABILITIES
from apps.catalog.price_cards import read_card
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation

_WEIGHT = [MinValueValidator(0), MaxValueValidator(1)]


def validate_prices(prices: Any) -> None:
    """Raise ValidationError naming an invalid price."""
    try:
        read_card(prices)
    except ValueError as error:
        raise ValidationError(f"Not prices: {error}") from error


class CatalogQuerySet(models.QuerySet[Any]):
    """Rows whose changes, also bulk changes, invalidate every worker's catalog."""

    def update(self, **kwargs: Any) -> int:
        """Update, and invalidate all copies of the catalog on commit."""
        count = super().update(**kwargs)
        generation.bump_on_commit(generation.CATALOG)
        return count

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete, and invalidate all copies of the catalog on commit."""
        deleted = super().delete()
        generation.bump_on_commit(generation.CATALOG)
        return deleted


class CatalogRow(models.Model):
    """A row of the catalog: saving it invalidates every worker's catalog."""

    active = models.BooleanField(default=True)
    # A data file owns this row's facts; false for rows of operators, and for rows whose entry is gone.
    file_owned = models.BooleanField(default=False, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = CatalogQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, and invalidate all copies of the catalog on commit."""
        super().save(*args, **kwargs)
        generation.bump_on_commit(generation.CATALOG)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete, and invalidate all copies of the catalog on commit."""
        deleted = super().delete(*args, **kwargs)
        generation.bump_on_commit(generation.CATALOG)
        return deleted


class Provider(CatalogRow):
    """A provider of models, with its address and wire format."""

    id = models.SlugField(primary_key=True, max_length=40)
    name = models.CharField(max_length=200)
    dialect = models.CharField(max_length=40)
    auth = models.CharField(max_length=40)
    base_url = models.CharField(max_length=300)
    api_key_env = models.CharField(max_length=80)
    website = models.URLField(blank=True)
    # The day on which a person last compared the data file with the provider's pages; empty for operators' own rows.
    checked_on = models.DateField(null=True, blank=True)
    # Differences of this provider from its dialect; dialects read them as `target.facts`.
    facts = models.JSONField(default=dict, blank=True)
    # Weight of the routing score: 0.8 lowers it by 20 percent, 0 excludes the provider from automatic routing.
    priority = models.DecimalField(max_digits=4, decimal_places=3, default=1, validators=_WEIGHT)

    def __str__(self) -> str:
        return self.name


class Model(CatalogRow):
    """A model, independent of providers. Its mappings have its features, prices and dates."""

    id = models.CharField(primary_key=True, max_length=120)
    name = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    family = models.CharField(max_length=80)
    # A provider's id; blank if the maker is not a provider.
    owned_by = models.CharField(max_length=40, blank=True)
    mode = models.CharField(max_length=24, choices=[(mode, mode) for mode in MODES])
    aliases = models.JSONField(default=list, blank=True)
    released_on = models.DateField(null=True, blank=True)
    context_length = models.PositiveIntegerField(null=True, blank=True)
    max_output = models.PositiveIntegerField(null=True, blank=True)
    input_modalities = models.JSONField(default=list)
    output_modalities = models.JSONField(default=list)
    # Other facts of the file: tokenizer, knowledge cut-off, open weights.
    facts = models.JSONField(default=dict, blank=True)
    # An operator's retirement, independent of providers: shown as deprecated from the first day on, and not served from
    # the second on.
    retiring_on = models.DateField(null=True, blank=True)
    retired_on = models.DateField(null=True, blank=True)

    def __str__(self) -> str:
        return self.id


class ModelProvider(CatalogRow):
    """A model at a provider: the mapping that requests are routed over."""

    provider = models.ForeignKey(Provider, models.CASCADE, related_name="mappings")
    model = models.ForeignKey(Model, models.CASCADE, related_name="mappings")
    # The provider's name of the model.
    model_name = models.CharField(max_length=200)
    # USD, as `apps.kernel.money.PriceCard` reads them; decimals as strings.
    prices = models.JSONField(default=dict, blank=True, validators=[validate_prices])
    context_length = models.PositiveIntegerField(null=True, blank=True)
    max_output = models.PositiveIntegerField(null=True, blank=True)
    streaming = models.BooleanField(default=True)
    cancellation = models.BooleanField(default=True)
    vision = models.BooleanField(default=False)
    tools = models.BooleanField(default=False)
    parallel_tools = models.BooleanField(default=False)
    tool_choice = models.BooleanField(default=False)
    reasoning = models.BooleanField(default=False)
    structured_outputs = models.BooleanField(default=False)
    json_output = models.BooleanField(default=False)
    web_search = models.BooleanField(default=False)
    prompt_cache = models.BooleanField(default=False)
    temperature = models.BooleanField(default=True)
    stability = models.CharField(max_length=16, default="stable", choices=[(word, word) for word in STABILITIES])
    # Other facts of the file: aliases there, reasoning efforts and budget, endpoint, dimensions, and differences from
    # its provider's facts.
    facts = models.JSONField(default=dict, blank=True)
    deprecated_at = models.DateField(null=True, blank=True)
    # The day on which the provider shuts it off.
    deactivated_at = models.DateField(null=True, blank=True)
    priority = models.DecimalField(max_digits=4, decimal_places=3, default=1, validators=_WEIGHT)
    # An operator's prices, which override the file's one by one, in the same format; null removes a price.
    price_overrides = models.JSONField(default=dict, blank=True, validators=[validate_prices])

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["provider", "model"], name="mapping_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.provider_id}/{self.model_id}"


class PriceChange(models.Model):
    """A change of a model's prices at a provider. Never changed, never deleted.

    Cards are stored as in a mapping (`price_cards.py`), with an operator's overrides applied; `{}` means no price.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # Plain ids: it outlives the rows.
    provider = models.CharField(max_length=40)
    model = models.CharField(max_length=120)
    old = models.JSONField()
    new = models.JSONField()
    # The operator's address, or the command.
    author = models.CharField(max_length=254)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["model", "provider", "-id"], name="price_change_of_mapping")]

    def __str__(self) -> str:
        return f"{self.provider}/{self.model} {self.created_at:%Y-%m-%d}"


class ScheduledPriceChange(models.Model):
    """An operator's prices of an offer that take effect later (`price_history.py`)."""

    class State(models.TextChoices):
        """Waiting until `effective_at`, unless it is withdrawn."""

        WAITING = "waiting"
        APPLIED = "applied"
        WITHDRAWN = "withdrawn"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # Plain ids: it outlives the rows.
    provider = models.CharField(max_length=40)
    model = models.CharField(max_length=120)
    # They replace the offer's overrides as a whole.
    overrides = models.JSONField(validators=[validate_prices])
    effective_at = models.DateTimeField()
    state = models.CharField(max_length=12, choices=State.choices, default=State.WAITING)
    # The operator's address.
    author = models.CharField(max_length=254)
    created_at = models.DateTimeField(auto_now_add=True)
    decided_at = models.DateTimeField(null=True)
    # The operator who withdrew or scheduled it.
    decided_by = models.CharField(max_length=254, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "model"], condition=models.Q(state="waiting"), name="price_change_waiting_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider}/{self.model} from {self.effective_at:%Y-%m-%d %H:%M} UTC"


class CatalogProposal(models.Model):
    """A change of one offer that price lists suggest, and its decision. Applied ones are laid over the data files."""

    class Kind(models.TextChoices):
        """The subject of a proposal; an offer may have one waiting proposal of each kind."""

        PRICES = "prices"
        DEACTIVATION = "deactivation"
        NEW_MODEL = "new_model"

    class State(models.TextChoices):
        """The decision."""

        WAITING = "waiting"
        APPLIED = "applied"
        DISMISSED = "dismissed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # Plain ids: a new model has no rows yet.
    provider = models.CharField(max_length=40)
    model = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    state = models.CharField(max_length=12, choices=State.choices, default=State.WAITING)
    # Each changed field as `[name, old, new]`, in words.
    changes = models.JSONField(default=list)
    # Keys of the offer's entry in its data file, decimals and days as strings; for a new model also `family` and
    # `model`, its entry there.
    entry = models.JSONField(default=dict)
    # Why a person must decide; empty if the operator may let the gateway decide.
    reasons = models.JSONField(default=list, blank=True)
    # Sources disagree: it cannot be applied.
    disputed = models.BooleanField(default=False)
    # Kinds of the price lists that state it.
    sources = models.JSONField(default=list)
    first_seen_at = models.DateTimeField(auto_now_add=True)
    seen_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    # The operator's address, or the program.
    decided_by = models.CharField(max_length=254, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "model", "kind"], condition=models.Q(state="waiting"), name="proposal_waiting_once"
            ),
        ]
        indexes = [models.Index(fields=["state", "decided_at"], name="proposal_by_state")]

    def __str__(self) -> str:
        return f"{self.provider}/{self.model} ({self.get_kind_display().lower()})"


class PriceListReading(models.Model):
    """The last reading of a price list that the operator configured."""

    # The kind of list and its address or file.
    source = models.CharField(primary_key=True, max_length=500)
    read_at = models.DateTimeField()
    # The last reading without a problem.
    succeeded_at = models.DateTimeField(null=True, blank=True)
    entries = models.PositiveIntegerField(default=0)
    # Why the list was refused; empty if it was read.
    problem = models.TextField(blank=True)
    # Entries and editions that were left out, with the reason.
    notes = models.JSONField(default=list, blank=True)

    def __str__(self) -> str:
        return self.source
