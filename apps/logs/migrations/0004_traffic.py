import apps.kernel.money
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('logs', '0003_rare_values'),
    ]

    operations = [
        migrations.CreateModel(
            name='TrafficDelta',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('starts_at', models.DateTimeField()),
                ('aspect', models.CharField(choices=[('everything', 'Everything'), ('model', 'Model'), ('provider', 'Provider'), ('organization', 'Organization'), ('end', 'End'), ('duration', 'Duration'), ('first_token', 'First Token')], max_length=16)),
                ('name', models.CharField(max_length=255)),
                ('requests', models.BigIntegerField(default=0)),
                ('errors', models.BigIntegerField(default=0)),
                ('cache_hits', models.BigIntegerField(default=0)),
                ('input_tokens', models.BigIntegerField(default=0)),
                ('output_tokens', models.BigIntegerField(default=0)),
                ('cached_tokens', models.BigIntegerField(default=0)),
                ('cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('credits_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='TrafficSlot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('starts_at', models.DateTimeField()),
                ('aspect', models.CharField(choices=[('everything', 'Everything'), ('model', 'Model'), ('provider', 'Provider'), ('organization', 'Organization'), ('end', 'End'), ('duration', 'Duration'), ('first_token', 'First Token')], max_length=16)),
                ('name', models.CharField(max_length=255)),
                ('requests', models.BigIntegerField(default=0)),
                ('errors', models.BigIntegerField(default=0)),
                ('cache_hits', models.BigIntegerField(default=0)),
                ('input_tokens', models.BigIntegerField(default=0)),
                ('output_tokens', models.BigIntegerField(default=0)),
                ('cached_tokens', models.BigIntegerField(default=0)),
                ('cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('credits_cost', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('minutes', models.PositiveSmallIntegerField()),
            ],
            options={
                'verbose_name_plural': 'traffic',
            },
        ),
        migrations.AlterModelOptions(
            name='requestlog',
            options={'permissions': [('view_content', 'Can see what was said')]},
        ),
        migrations.AddIndex(
            model_name='activityday',
            index=models.Index(condition=models.Q(('api_key_id', uuid.UUID('00000000-0000-0000-0000-000000000000')), ('project_id', uuid.UUID('00000000-0000-0000-0000-000000000000'))), fields=['date', 'id'], name='activity_day_newest'),
        ),
        migrations.AddConstraint(
            model_name='trafficslot',
            constraint=models.UniqueConstraint(fields=('minutes', 'starts_at', 'aspect', 'name'), name='traffic_slot_once'),
        ),
    ]
