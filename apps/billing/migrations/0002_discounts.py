import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    """Discounts: one a scope, a share between nothing and all. Of several for one scope the newest stays."""

    dependencies = [
        ('billing', '0001_initial'),
        ('organizations', '0004_audit_not_emptied'),
    ]

    operations = [
        migrations.RunSQL(
            """
            DELETE FROM billing_discount older USING billing_discount newer
            WHERE older.id < newer.id AND older.provider = newer.provider AND older.model = newer.model
              AND older.organization_id IS NOT DISTINCT FROM newer.organization_id;
            """,
            migrations.RunSQL.noop,
        ),
        migrations.AlterField(
            model_name='discount',
            name='provider',
            field=models.CharField(blank=True, help_text="the catalog's id; blank is every provider", max_length=40),
        ),
        migrations.AlterField(
            model_name='discount',
            name='model',
            field=models.CharField(blank=True, help_text="the catalog's id; blank is every model", max_length=120),
        ),
        migrations.AlterField(
            model_name='discount',
            name='share',
            field=models.DecimalField(decimal_places=3, help_text='0.2 takes 20 percent off; 0 takes nothing off, whatever a wider discount says', max_digits=4, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(1)]),
        ),
        migrations.AddConstraint(
            model_name='discount',
            constraint=models.UniqueConstraint(fields=('organization', 'provider', 'model'), name='discount_once_per_scope', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='discount',
            constraint=models.CheckConstraint(condition=models.Q(('share__gte', 0), ('share__lte', 1)), name='discount_is_a_share'),
        ),
    ]
