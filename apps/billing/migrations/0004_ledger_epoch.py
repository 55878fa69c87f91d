from django.db import migrations, models

# Later than any epoch of a database that was here before: its copies of balances must not count for this one's.
BEGIN = """
    INSERT INTO billing_ledgerepoch (number, reason, began_at)
    VALUES ((extract(epoch FROM now()) * 1000000)::bigint, 'the database was made, or upgraded', now())
"""


class Migration(migrations.Migration):
    """The ledger's epochs: which copies of balances are of this database's history."""

    dependencies = [
        ('billing', '0003_payments'),
    ]

    operations = [
        migrations.CreateModel(
            name='LedgerEpoch',
            fields=[
                ('number', models.BigIntegerField(editable=False, primary_key=True, serialize=False)),
                ('reason', models.CharField(max_length=200)),
                ('began_at', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.RunSQL(BEGIN, migrations.RunSQL.noop),
    ]
