"""Files arrive in parts: the uploads of OpenAI's API, and the parts of which a file was made."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('batches', '0005_custom_ids'),
    ]

    operations = [
        migrations.CreateModel(
            name='Upload',
            fields=[
                ('id', models.CharField(editable=False, max_length=80, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField(db_index=True)),
                ('organization_id', models.UUIDField(db_index=True)),
                ('project_id', models.UUIDField()),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('completed', 'Completed'), ('cancelled', 'Cancelled')], default='pending', max_length=16)),
                ('purpose', models.CharField(choices=[('assistants', 'Assistants'), ('batch', 'Batch'), ('batch_output', 'Batch Output'), ('evals', 'Evals'), ('fine-tune', 'Fine Tune'), ('user_data', 'User Data'), ('vision', 'Vision'), ('message_batch', 'Message Batch'), ('message_batch_results', 'Message Batch Results'), ('image_link', 'Image Link'), ('upload_part', 'Upload Part')], max_length=32)),
                ('size', models.BigIntegerField(help_text='bytes that its parts must have together')),
                ('sealed_name', models.TextField()),
                ('file_id', models.CharField(max_length=80)),
                ('lifetime', models.PositiveIntegerField(help_text='seconds that its file is kept, if said', null=True)),
            ],
            options={
                'db_table': 'file_upload',
            },
        ),
        migrations.AddField(
            model_name='storedfile',
            name='sealed_parts',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AlterField(
            model_name='storedfile',
            name='purpose',
            field=models.CharField(choices=[('assistants', 'Assistants'), ('batch', 'Batch'), ('batch_output', 'Batch Output'), ('evals', 'Evals'), ('fine-tune', 'Fine Tune'), ('user_data', 'User Data'), ('vision', 'Vision'), ('message_batch', 'Message Batch'), ('message_batch_results', 'Message Batch Results'), ('image_link', 'Image Link'), ('upload_part', 'Upload Part')], max_length=32),
        ),
        migrations.AddField(
            model_name='storedfile',
            name='upload',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='batches.upload'),
        ),
    ]
