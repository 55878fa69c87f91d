"""That the owners of a log sink are to be told that it was switched off."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the column, with a default of the database's for versions that do not know it."""

    dependencies = [("log_sinks", "0002_support_sees_log_sinks")]

    operations = [
        migrations.AddField(
            model_name="logsink",
            name="disabled_notice_due",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
    ]
