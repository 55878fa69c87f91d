import apps.catalog.models
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Model',
            fields=[
                ('active', models.BooleanField(default=True)),
                ('file_owned', models.BooleanField(default=False, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.CharField(max_length=120, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('description', models.TextField(blank=True)),
                ('family', models.CharField(max_length=80)),
                ('owned_by', models.CharField(blank=True, max_length=40)),
                ('mode', models.CharField(choices=[('chat', 'chat'), ('image_generation', 'image_generation'), ('embedding', 'embedding')], max_length=24)),
                ('aliases', models.JSONField(blank=True, default=list)),
                ('released_on', models.DateField(blank=True, null=True)),
                ('context_length', models.PositiveIntegerField(blank=True, null=True)),
                ('max_output', models.PositiveIntegerField(blank=True, null=True)),
                ('input_modalities', models.JSONField(default=list)),
                ('output_modalities', models.JSONField(default=list)),
                ('facts', models.JSONField(blank=True, default=dict)),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Provider',
            fields=[
                ('active', models.BooleanField(default=True)),
                ('file_owned', models.BooleanField(default=False, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('id', models.SlugField(max_length=40, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('dialect', models.CharField(max_length=40)),
                ('auth', models.CharField(max_length=40)),
                ('base_url', models.CharField(max_length=300)),
                ('api_key_env', models.CharField(max_length=80)),
                ('website', models.URLField(blank=True)),
                ('facts', models.JSONField(blank=True, default=dict)),
                ('priority', models.DecimalField(decimal_places=3, default=1, max_digits=4, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(1)])),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='ModelProvider',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('active', models.BooleanField(default=True)),
                ('file_owned', models.BooleanField(default=False, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('model_name', models.CharField(max_length=200)),
                ('prices', models.JSONField(blank=True, default=dict, validators=[apps.catalog.models.validate_prices])),
                ('context_length', models.PositiveIntegerField(blank=True, null=True)),
                ('max_output', models.PositiveIntegerField(blank=True, null=True)),
                ('streaming', models.BooleanField(default=True)),
                ('cancellation', models.BooleanField(default=True)),
                ('vision', models.BooleanField(default=False)),
                ('tools', models.BooleanField(default=False)),
                ('parallel_tools', models.BooleanField(default=False)),
                ('tool_choice', models.BooleanField(default=False)),
                ('reasoning', models.BooleanField(default=False)),
                ('structured_outputs', models.BooleanField(default=False)),
                ('json_output', models.BooleanField(default=False)),
                ('web_search', models.BooleanField(default=False)),
                ('prompt_cache', models.BooleanField(default=False)),
                ('temperature', models.BooleanField(default=True)),
                ('stability', models.CharField(choices=[('stable', 'stable'), ('beta', 'beta'), ('unstable', 'unstable'), ('experimental', 'experimental')], default='stable', max_length=16)),
                ('facts', models.JSONField(blank=True, default=dict)),
                ('deprecated_at', models.DateField(blank=True, null=True)),
                ('deactivated_at', models.DateField(blank=True, null=True)),
                ('priority', models.DecimalField(decimal_places=3, default=1, max_digits=4, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(1)])),
                ('price_overrides', models.JSONField(blank=True, default=dict, validators=[apps.catalog.models.validate_prices])),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='mappings', to='catalog.model')),
                ('provider', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='mappings', to='catalog.provider')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('provider', 'model'), name='mapping_unique')],
            },
        ),
    ]
