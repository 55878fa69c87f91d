"""An upstream provider played from a script, over real HTTP: for the first run, tests, benchmarks and chaos.

Started as its own process, `python -m apps.sandbox --port 8001`. From the outside in:

    server.py       sockets: reads requests, carries out steps, notices when the client leaves
    routes.py       finds the part that answers a request
    response_steps.py  answer + scenario -> steps (send, pause, hang, close)
    formats/        one file a wire format: reads its requests, writes its replies and streams
    scripted_reply.py  conversation -> answer, always the same for the same conversation
    scenario.py     the outcome of a request, from directives in the model name, a message or a header
    journal.py      requests, and how each ended

It imports nothing of the gateway, as a provider's server would not. No Django.
"""
