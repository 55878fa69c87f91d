"""Whether a custom rule's masked values are put back into the model's answer."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the column, with a default of the database's for versions that do not know it."""

    dependencies = [("guardrails", "0003_custom_rule_secrets")]

    operations = [
        migrations.AddField(
            model_name="customrule",
            name="restore",
            field=models.BooleanField(
                db_default=True, default=True, help_text="Put masked values back into the model's answer"
            ),
        ),
    ]
