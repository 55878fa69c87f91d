from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0001_initial'),
    ]

    operations = [
        migrations.AlterField(
            model_name='model',
            name='mode',
            field=models.CharField(choices=[('chat', 'chat'), ('image_generation', 'image_generation'), ('embedding', 'embedding'), ('moderation', 'moderation'), ('rerank', 'rerank'), ('audio_speech', 'audio_speech'), ('audio_transcription', 'audio_transcription')], max_length=24),
        ),
    ]
