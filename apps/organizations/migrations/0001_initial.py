import apps.kernel.ids
import apps.kernel.money
import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='User',
            fields=[
                ('password', models.CharField(max_length=128, verbose_name='password')),
                ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('email', models.EmailField(max_length=254, unique=True)),
                ('name', models.CharField(blank=True, max_length=255)),
                ('is_active', models.BooleanField(default=True)),
                ('is_staff', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Organization',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=255)),
                ('billing_email', models.EmailField(blank=True, max_length=254, null=True)),
                ('billing_company', models.CharField(blank=True, max_length=255, null=True)),
                ('billing_address', models.TextField(blank=True, null=True)),
                ('billing_tax_id', models.CharField(blank=True, max_length=100, null=True)),
                ('billing_notes', models.TextField(blank=True, null=True)),
                ('credits', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('credits_version', models.BigIntegerField(default=0)),
                ('plan', models.CharField(choices=[('free', 'Free'), ('pro', 'Pro'), ('enterprise', 'Enterprise')], default='free', max_length=16)),
                ('plan_expires_at', models.DateTimeField(blank=True, null=True)),
                ('retention_level', models.CharField(choices=[('none', 'None'), ('metadata', 'Metadata'), ('retain', 'Retain')], default='none', max_length=16)),
                ('status', models.CharField(choices=[('active', 'Active'), ('inactive', 'Inactive'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('auto_top_up_enabled', models.BooleanField(default=False)),
                ('auto_top_up_threshold', apps.kernel.money.MoneyField(decimal_places=12, default=10, max_digits=24)),
                ('auto_top_up_amount', apps.kernel.money.MoneyField(decimal_places=12, default=10, max_digits=24)),
                ('referral_earnings', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('is_personal', models.BooleanField(default=False)),
                ('dev_plan', models.CharField(choices=[('none', 'None'), ('lite', 'Lite'), ('pro', 'Pro'), ('max', 'Max')], default='none', max_length=16)),
                ('dev_plan_credits_used', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('dev_plan_credits_limit', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('dev_plan_billing_cycle_start', models.DateTimeField(blank=True, null=True)),
                ('dev_plan_expires_at', models.DateTimeField(blank=True, null=True)),
                ('dev_plan_allow_all_models', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('referred_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='referred', to='organizations.organization')),
            ],
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('role', models.CharField(choices=[('owner', 'Owner'), ('admin', 'Admin'), ('developer', 'Developer')], max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='organizations.organization')),
            ],
        ),
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=255)),
                ('caching_enabled', models.BooleanField(default=False)),
                ('cache_duration_seconds', models.PositiveIntegerField(default=60, validators=[django.core.validators.MinValueValidator(10), django.core.validators.MaxValueValidator(31536000)])),
                ('mode', models.CharField(choices=[('api-keys', 'Api Keys'), ('credits', 'Credits'), ('hybrid', 'Hybrid')], default='hybrid', max_length=16)),
                ('status', models.CharField(choices=[('active', 'Active'), ('archived', 'Archived'), ('deleted', 'Deleted')], default='active', max_length=16)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='projects', to='organizations.organization')),
            ],
        ),
        migrations.AddIndex(
            model_name='organization',
            index=models.Index(fields=['status'], name='organizatio_status_295901_idx'),
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=models.UniqueConstraint(fields=('organization', 'user'), name='membership_once'),
        ),
        migrations.AddIndex(
            model_name='project',
            index=models.Index(fields=['organization', 'status'], name='organizatio_organiz_91de79_idx'),
        ),
    ]
