import apps.kernel.ids
import apps.kernel.money
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


# The ledger is append-only. The second trigger is apart so that a test database can be emptied.
APPEND_ONLY = """
CREATE FUNCTION refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ledger entries are never changed: % refused', TG_OP
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE ON billing_ledgerentry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_ledger_change();
CREATE TRIGGER ledger_not_emptied BEFORE TRUNCATE ON billing_ledgerentry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_ledger_change();
"""
CHANGEABLE = """
DROP TRIGGER ledger_not_emptied ON billing_ledgerentry;
DROP TRIGGER ledger_append_only ON billing_ledgerentry;
DROP FUNCTION refuse_ledger_change();
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('organizations', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Discount',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('provider', models.CharField(blank=True, max_length=40)),
                ('model', models.CharField(blank=True, max_length=120)),
                ('share', models.DecimalField(decimal_places=3, max_digits=4, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(1)])),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('organization', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='discounts', to='organizations.organization')),
            ],
        ),
        migrations.CreateModel(
            name='LedgerEntry',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('organization_id', models.UUIDField()),
                ('api_key_id', models.UUIDField(null=True)),
                ('kind', models.CharField(choices=[('usage', 'Usage'), ('storage', 'Storage'), ('top_up', 'Top Up'), ('gift', 'Gift'), ('refund', 'Refund'), ('referral', 'Referral')], max_length=16)),
                ('credits', apps.kernel.money.MoneyField(decimal_places=12, max_digits=24)),
                ('usage', apps.kernel.money.MoneyField(decimal_places=12, default=0, max_digits=24)),
                ('reference', models.UUIDField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'verbose_name_plural': 'ledger entries',
                'indexes': [models.Index(fields=['organization_id', 'created_at'], name='billing_led_organiz_f817e3_idx'), models.Index(condition=models.Q(('api_key_id__isnull', False)), fields=['api_key_id'], name='ledger_api_key')],
                'constraints': [models.UniqueConstraint(fields=('kind', 'reference'), name='ledger_once_per_reference')],
            },
        ),
        migrations.CreateModel(
            name='PaymentMethod',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('processor_customer_id', models.CharField(max_length=255)),
                ('processor_payment_method_id', models.CharField(max_length=255, unique=True)),
                ('brand', models.CharField(blank=True, max_length=32)),
                ('last_four', models.CharField(blank=True, max_length=4)),
                ('is_default', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='payment_methods', to='organizations.organization')),
            ],
        ),
        migrations.CreateModel(
            name='Transaction',
            fields=[
                ('id', models.UUIDField(default=apps.kernel.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('type', models.CharField(choices=[('subscription_start', 'Subscription Start'), ('subscription_cancel', 'Subscription Cancel'), ('subscription_end', 'Subscription End'), ('credit_topup', 'Credit Topup'), ('credit_refund', 'Credit Refund'), ('credit_gift', 'Credit Gift'), ('dev_plan_start', 'Dev Plan Start'), ('dev_plan_upgrade', 'Dev Plan Upgrade'), ('dev_plan_downgrade', 'Dev Plan Downgrade'), ('dev_plan_cancel', 'Dev Plan Cancel'), ('dev_plan_end', 'Dev Plan End'), ('dev_plan_renewal', 'Dev Plan Renewal')], max_length=24)),
                ('amount', apps.kernel.money.MoneyField(decimal_places=12, max_digits=24)),
                ('credit_amount', apps.kernel.money.MoneyField(blank=True, decimal_places=12, max_digits=24, null=True)),
                ('currency', models.CharField(default='USD', max_length=3)),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('completed', 'Completed'), ('failed', 'Failed')], default='pending', max_length=12)),
                ('processor_payment_intent_id', models.CharField(blank=True, max_length=255, null=True)),
                ('processor_invoice_id', models.CharField(blank=True, max_length=255, null=True)),
                ('description', models.TextField(blank=True)),
                ('refund_reason', models.TextField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('organization', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='transactions', to='organizations.organization')),
                ('related_transaction', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='billing.transaction')),
            ],
            options={
                'indexes': [models.Index(fields=['organization', '-created_at'], name='billing_tra_organiz_1ecd34_idx')],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, CHANGEABLE),
    ]
