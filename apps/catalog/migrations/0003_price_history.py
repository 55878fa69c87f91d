import apps.kernel.ids
from django.db import migrations, models

# The history of prices is append-only. Emptying the table is let through, so that a test database can be emptied.
APPEND_ONLY = """
CREATE FUNCTION refuse_price_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the history of prices is never changed: % refused', TG_OP
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER price_history_append_only BEFORE UPDATE OR DELETE ON catalog_pricechange
    FOR EACH ROW EXECUTE FUNCTION refuse_price_change();
"""
CHANGEABLE = """
DROP TRIGGER price_history_append_only ON catalog_pricechange;
DROP FUNCTION refuse_price_change();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0002_model_modes'),
    ]

    operations = [
        migrations.AddField(
            model_name='model',
            name='retired_on',
            field=models.DateField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='model',
            name='retiring_on',
            field=models.DateField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name='PriceChange',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('provider', models.CharField(max_length=40)),
                ('model', models.CharField(max_length=120)),
                ('old', models.JSONField()),
                ('new', models.JSONField()),
                ('author', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'indexes': [models.Index(fields=['model', 'provider', '-id'], name='price_change_of_mapping')],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, CHANGEABLE),
    ]
