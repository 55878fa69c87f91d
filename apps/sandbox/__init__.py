"""An upstream provider played from a script, over real HTTP: for the first run, tests, benchmarks and chaos.

Started as its own process, `python -m apps.sandbox --port 8001`. From the outside in:

    server.py       sockets: reads requests, carries out steps, notices when the client leaves
    routes.py       which request is answered by whom
    performance.py  answer + scenario -> steps (send, pause, hang, close)
    formats/        one file a wire format: reads its requests, writes its replies and streams
    brain.py        conversation -> answer, always the same for the same conversation
    scenario.py     what will happen, from directives in the model name, a message or a header
    journal.py      what was asked, and how each request ended

Knows nothing of the gateway: it is somebody else's server. No Django.
"""
