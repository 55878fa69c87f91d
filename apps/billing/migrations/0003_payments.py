import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Payments: an organization's account at the processor, its messages, and what no attempt may be made twice for."""

    dependencies = [
        ('billing', '0002_discounts'),
        ('organizations', '0004_audit_not_emptied'),
    ]

    operations = [
        migrations.CreateModel(
            name='BillingAccount',
            fields=[
                ('organization', models.OneToOneField(editable=False, on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='billing_account', serialize=False, to='organizations.organization')),
                ('processor_customer_id', models.CharField(max_length=255, null=True, unique=True)),
                ('top_up_declines', models.PositiveSmallIntegerField(default=0)),
                ('next_top_up_at', models.DateTimeField(null=True)),
                ('subscription_id', models.CharField(max_length=255, null=True, unique=True)),
                ('subscription_status', models.CharField(blank=True, max_length=32)),
                ('cancels_at_period_end', models.BooleanField(default=False)),
                ('revision', models.PositiveIntegerField(default=0)),
                ('notice', models.CharField(blank=True, choices=[('auto_top_up_declined', 'Auto Top Up Declined'), ('auto_top_up_disabled', 'Auto Top Up Disabled'), ('subscription_unpaid', 'Subscription Unpaid'), ('subscription_ended', 'Subscription Ended')], max_length=32)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
        ),
        migrations.CreateModel(
            name='ProcessorEvent',
            fields=[
                ('id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('type', models.CharField(max_length=100)),
                ('received_at', models.DateTimeField(auto_now_add=True, db_index=True)),
                ('done_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name='paymentmethod',
            name='exp_month',
            field=models.PositiveSmallIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='paymentmethod',
            name='exp_year',
            field=models.PositiveSmallIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='transaction',
            name='is_automatic',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='transaction',
            name='processor_payment_method_id',
            field=models.CharField(blank=True, max_length=255, null=True),
        ),
        migrations.AddField(
            model_name='transaction',
            name='processor_refund_id',
            field=models.CharField(blank=True, max_length=255, null=True, unique=True),
        ),
        migrations.AddField(
            model_name='transaction',
            name='request_key',
            field=models.CharField(blank=True, max_length=64, null=True, unique=True),
        ),
        migrations.AddIndex(
            model_name='transaction',
            index=models.Index(condition=models.Q(('status', 'pending')), fields=['created_at'], name='transaction_pending'),
        ),
        migrations.AddConstraint(
            model_name='paymentmethod',
            constraint=models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('organization',), name='one_default_payment_method'),
        ),
        migrations.AddConstraint(
            model_name='transaction',
            constraint=models.UniqueConstraint(condition=models.Q(('is_automatic', True), ('status', 'pending'), ('type', 'credit_topup')), fields=('organization',), name='one_automatic_top_up_at_a_time'),
        ),
        migrations.AddConstraint(
            model_name='transaction',
            constraint=models.UniqueConstraint(condition=models.Q(('status', 'pending'), ('type', 'subscription_start')), fields=('organization',), name='one_subscription_at_a_time'),
        ),
        migrations.AddConstraint(
            model_name='transaction',
            constraint=models.UniqueConstraint(condition=models.Q(('type', 'credit_topup')), fields=('processor_payment_intent_id',), name='top_up_once_per_payment'),
        ),
        migrations.AddConstraint(
            model_name='transaction',
            constraint=models.UniqueConstraint(condition=models.Q(('type', 'subscription_start')), fields=('processor_invoice_id',), name='subscription_once_per_invoice'),
        ),
        migrations.AddIndex(
            model_name='billingaccount',
            index=models.Index(condition=models.Q(('notice', ''), _negated=True), fields=['notice'], name='billing_account_notice'),
        ),
        # Who is to be looked at every minute. Credits are not in it: they change with every request.
        migrations.RunSQL(
            "CREATE INDEX organization_tops_up ON organizations_organization (id) WHERE auto_top_up_enabled",
            "DROP INDEX organization_tops_up",
        ),
    ]
