import apps.kernel.pages.languages
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('organizations', '0015_deletions_and_invited_operators'),
    ]

    operations = [
        migrations.AddField(
            model_name='user',
            name='language',
            field=models.CharField(blank=True, db_default='', default='', max_length=16),
        ),
        migrations.AddField(
            model_name='user',
            name='page_language',
            field=models.CharField(db_default='', default=apps.kernel.pages.languages.active_language, editable=False, max_length=16),
        ),
    ]
