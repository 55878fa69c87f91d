"""An index by which a later piece of an input finds a custom id that an earlier piece had."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('batches', '0004_pieces'),
    ]

    operations = [
        AddIndexConcurrently(
            model_name='batchline',
            index=models.Index(fields=['batch', 'custom_id_digest'], name='batch_line_custom_id'),
        ),
    ]
