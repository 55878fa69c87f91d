import apps.kernel.money
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


# Rows there are already: what they keep, and what their days add up to.
KEPT = """
UPDATE request_log SET retention_level = CASE
    WHEN num_nonnulls(messages, content, reasoning_content, tool_results) > 0 THEN 'retain' ELSE 'metadata' END
WHERE num_nonnulls(messages, content, reasoning_content, tool_results, finish_reason, source, custom_headers,
    routing_metadata, temperature, top_p, max_tokens, tools, tool_choice, response_format) > 0
"""
ADDED_UP = """
INSERT INTO logs_activitydelta (
    date, organization_id, project_id, api_key_id, model, provider, request_count, input_tokens, output_tokens,
    cached_tokens, total_tokens, error_count, cache_count, credits_request_count, api_keys_request_count, cost,
    input_cost, output_cost, cached_input_cost, request_cost, data_storage_cost, image_input_cost, image_output_cost,
    discount_savings, credits_cost, api_keys_cost, credits_data_storage_cost, api_keys_data_storage_cost
) SELECT
    (created_at AT TIME ZONE 'UTC')::date, organization_id, project_id, api_key_id,
    coalesce(nullif(used_model, ''), requested_model), used_provider, count(*),
    coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0), coalesce(sum(cached_tokens), 0),
    coalesce(sum(total_tokens), 0), count(*) FILTER (WHERE has_error), count(*) FILTER (WHERE cached),
    count(*) FILTER (WHERE used_mode = 'credits'), count(*) FILTER (WHERE used_mode <> 'credits'),
    coalesce(sum(cost), 0), coalesce(sum(input_cost), 0) + coalesce(sum(cache_write_cost), 0),
    coalesce(sum(output_cost), 0), coalesce(sum(cached_input_cost), 0),
    coalesce(sum(request_cost), 0) + coalesce(sum(web_search_cost), 0), 0,
    coalesce(sum(image_input_cost), 0), coalesce(sum(image_output_cost), 0), coalesce(sum(discount_savings), 0),
    coalesce(sum(cost) FILTER (WHERE used_mode = 'credits'), 0),
    coalesce(sum(cost) FILTER (WHERE used_mode <> 'credits'), 0), 0, 0
FROM request_log GROUP BY 1, 2, 3, 4, 5, 6
"""


class Migration(migrations.Migration):

    dependencies = [
        ('logs', '0001_initial'),
        ('organizations', '0004_audit_not_emptied'),
    ]

    operations = [
        migrations.RemoveConstraint(model_name='activityday', name='activity_day_once'),
        migrations.RemoveIndex(model_name='activityday', name='logs_activi_organiz_d5e91e_idx'),
        migrations.RemoveIndex(model_name='activityday', name='logs_activi_project_7efc0a_idx'),
        migrations.AddConstraint(
            model_name='activityday',
            constraint=models.UniqueConstraint(fields=('organization_id', 'project_id', 'api_key_id', 'date', 'model', 'provider'), name='activity_day_once'),
        ),
        migrations.CreateModel(
            name='ActivityDelta',
            fields=[
                ('date', models.DateField()),
                ('organization_id', models.UUIDField()),
                ('project_id', models.UUIDField()),
                ('api_key_id', models.UUIDField()),
                ('model', models.CharField(max_length=255)),
                ('provider', models.CharField(max_length=80)),
                ('request_count', models.BigIntegerField(default=0)),
                ('input_tokens', models.BigIntegerField(default=0)),
                ('output_tokens', models.BigIntegerField(default=0)),
                ('cached_tokens', models.BigIntegerField(default=0)),
                ('total_tokens', models.BigIntegerField(default=0)),
                ('error_count', models.BigIntegerField(default=0)),
                ('cache_count', models.BigIntegerField(default=0)),
                ('credits_request_count', models.BigIntegerField(default=0)),
                ('api_keys_request_count', models.BigIntegerField(default=0)),
                ('cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('input_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('output_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('cached_input_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('request_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('data_storage_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('image_input_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('image_output_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('discount_savings', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('credits_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('api_keys_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('credits_data_storage_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('api_keys_data_storage_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
            ],
        ),
        migrations.CreateModel(
            name='LogRetention',
            fields=[
                ('organization', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='organizations.organization')),
                ('days', models.PositiveIntegerField(validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(3650)])),
            ],
            options={
                'verbose_name_plural': 'log retention',
            },
        ),
        migrations.AddField(
            model_name='requestlog',
            name='retention_level',
            field=models.CharField(choices=[('none', 'None'), ('metadata', 'Metadata'), ('retain', 'Retain')], db_default='none', default='none', max_length=16),
        ),
        migrations.AddIndex(
            model_name='requestlog',
            index=models.Index(condition=models.Q(('retention_level', 'none'), _negated=True), fields=['organization_id', 'retention_level'], name='log_kept'),
        ),
        migrations.AddIndex(
            model_name='activitydelta',
            index=models.Index(fields=['organization_id', 'date'], name='activity_delta_organization'),
        ),
        migrations.RunSQL(KEPT, migrations.RunSQL.noop),
        migrations.RunSQL(ADDED_UP, migrations.RunSQL.noop),
    ]
