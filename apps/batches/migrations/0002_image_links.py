from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('batches', '0001_initial'),
    ]

    operations = [
        migrations.AlterField(
            model_name='storedfile',
            name='purpose',
            field=models.CharField(choices=[('assistants', 'Assistants'), ('batch', 'Batch'), ('batch_output', 'Batch Output'), ('evals', 'Evals'), ('fine-tune', 'Fine Tune'), ('user_data', 'User Data'), ('vision', 'Vision'), ('message_batch', 'Message Batch'), ('message_batch_results', 'Message Batch Results'), ('image_link', 'Image Link')], max_length=32),
        ),
    ]
