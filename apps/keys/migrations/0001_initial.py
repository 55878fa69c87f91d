import apps.kernel.ids
import apps.kernel.money
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('organizations', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('description', models.CharField(max_length=255)),
                ('digest', models.BinaryField(max_length=32, unique=True)),
                ('prefix', models.CharField(editable=False, max_length=16)),
                ('last_four', models.CharField(editable=False, max_length=4)),
                ('status', models.CharField(choices=[('active', 'Active'), ('inactive', 'Inactive'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('usage_limit', apps.kernel.money.MoneyField(blank=True, decimal_places=12, max_digits=24, null=True)),
                ('usage', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('usage_version', models.BigIntegerField(default=0)),
                ('period', models.CharField(blank=True, choices=[('hour', 'Hour'), ('day', 'Day'), ('week', 'Week'), ('month', 'Month')], max_length=8)),
                ('period_limit', apps.kernel.money.MoneyField(blank=True, decimal_places=12, max_digits=24, null=True)),
                ('requests_per_minute', models.PositiveIntegerField(blank=True, null=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='api_keys', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_keys', to='organizations.project')),
            ],
        ),
        migrations.CreateModel(
            name='IamRule',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('rule_type', models.CharField(choices=[('allow_models', 'Allow Models'), ('deny_models', 'Deny Models'), ('allow_pricing', 'Allow Pricing'), ('deny_pricing', 'Deny Pricing'), ('allow_providers', 'Allow Providers'), ('deny_providers', 'Deny Providers')], max_length=20)),
                ('rule_value', models.JSONField()),
                ('status', models.CharField(choices=[('active', 'Active'), ('inactive', 'Inactive')], default='active', max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('api_key', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='iam_rules', to='keys.apikey')),
            ],
        ),
        migrations.CreateModel(
            name='ProviderKey',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('provider', models.CharField(max_length=40)),
                ('provider_name', models.CharField(blank=True, max_length=40)),
                ('base_url', models.URLField(blank=True, max_length=500)),
                ('encrypted_token', models.BinaryField()),
                ('last_four', models.CharField(editable=False, max_length=4)),
                ('status', models.CharField(choices=[('active', 'Active'), ('inactive', 'Inactive'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='provider_keys', to='organizations.organization')),
            ],
        ),
        migrations.AddIndex(
            model_name='apikey',
            index=models.Index(fields=['project', 'status'], name='keys_apikey_project_00ad36_idx'),
        ),
        migrations.AddIndex(
            model_name='iamrule',
            index=models.Index(fields=['api_key', 'status'], name='keys_iamrul_api_key_8ceda2_idx'),
        ),
        migrations.AddIndex(
            model_name='providerkey',
            index=models.Index(fields=['organization', 'status'], name='keys_provid_organiz_b69e80_idx'),
        ),
        migrations.AddConstraint(
            model_name='providerkey',
            constraint=models.UniqueConstraint(condition=models.Q(('provider', 'custom'), models.Q(('status', 'deleted'), _negated=True)), fields=('organization', 'provider_name'), name='custom_provider_name_unique'),
        ),
    ]
