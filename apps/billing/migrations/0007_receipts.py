"""Receipts: whether the e-mails about payments and expiring cards are sent."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Existing payments count as receipted, also those that an older version adds meanwhile."""

    dependencies = [
        ('billing', '0006_invoices'),
    ]

    operations = [
        migrations.AddField(
            model_name='paymentmethod',
            name='noticed_expiry',
            field=models.CharField(blank=True, db_default='', default='', editable=False, max_length=7),
        ),
        migrations.AddField(
            model_name='transaction',
            name='is_receipted',
            field=models.BooleanField(db_default=True, default=False, editable=False),
        ),
        migrations.AddIndex(
            model_name='transaction',
            index=models.Index(condition=models.Q(('is_receipted', False), ('status', 'completed')), fields=['id'], name='transaction_receipt_due'),
        ),
    ]
