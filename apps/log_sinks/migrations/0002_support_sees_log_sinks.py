"""Let the `support` group of deployments that have one already look at log sinks: new groups are made with that right.

Once: whoever takes the right away again afterwards has it stay away.
"""

from django.db import migrations


def let_support_look(apps, schema_editor):
    """Give the right to the group, if it is there."""
    group = apps.get_model("auth", "Group").objects.filter(name="support").first()
    if group is None:
        return
    # Django makes both after all migrations: they may not be there yet.
    kind, _ = apps.get_model("contenttypes", "ContentType").objects.get_or_create(app_label="log_sinks", model="logsink")
    right, _ = apps.get_model("auth", "Permission").objects.get_or_create(
        content_type=kind, codename="view_logsink", defaults={"name": "Can view log sink"}
    )
    group.permissions.add(right)


class Migration(migrations.Migration):
    """See the module's docstring."""

    dependencies = [
        ("log_sinks", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(let_support_look, migrations.RunPython.noop)]
