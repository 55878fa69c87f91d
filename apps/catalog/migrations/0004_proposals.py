import apps.kernel.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0003_price_history'),
    ]

    operations = [
        migrations.AddField(
            model_name='provider',
            name='checked_on',
            field=models.DateField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name='CatalogProposal',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('provider', models.CharField(max_length=40)),
                ('model', models.CharField(max_length=120)),
                ('kind', models.CharField(choices=[('prices', 'Prices'), ('deactivation', 'Deactivation'), ('new_model', 'New Model')], max_length=16)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('applied', 'Applied'), ('dismissed', 'Dismissed')], default='waiting', max_length=12)),
                ('changes', models.JSONField(default=list)),
                ('entry', models.JSONField(default=dict)),
                ('reasons', models.JSONField(blank=True, default=list)),
                ('disputed', models.BooleanField(default=False)),
                ('sources', models.JSONField(default=list)),
                ('first_seen_at', models.DateTimeField(auto_now_add=True)),
                ('seen_at', models.DateTimeField()),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('decided_by', models.CharField(blank=True, max_length=254)),
            ],
            options={
                'indexes': [models.Index(fields=['state', 'decided_at'], name='proposal_by_state')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'waiting')), fields=('provider', 'model', 'kind'), name='proposal_waiting_once')],
            },
        ),
        migrations.CreateModel(
            name='PriceListReading',
            fields=[
                ('source', models.CharField(max_length=500, primary_key=True, serialize=False)),
                ('read_at', models.DateTimeField()),
                ('succeeded_at', models.DateTimeField(blank=True, null=True)),
                ('entries', models.PositiveIntegerField(default=0)),
                ('problem', models.TextField(blank=True)),
                ('notes', models.JSONField(blank=True, default=list)),
            ],
        ),
    ]
