"""A program for DSPy: an answer, and a prediction that has a form."""

import json
import os

import dspy

model = dspy.LM(
    "openai/" + os.environ["MODEL"],
    api_base=os.environ["GATEWAY_URL"] + "/v1",
    api_key=os.environ["GATEWAY_KEY"],
    cache=False,
    num_retries=0,
)
dspy.configure(lm=model, adapter=dspy.JSONAdapter())


class Name(dspy.Signature):
    """Tell who is meant."""

    question: str = dspy.InputField()
    name: str = dspy.OutputField()


said = dspy.Predict(Name)(question="What is the 'name'? [[sandbox json]]")
(plain,) = model("hello")
print(json.dumps({"text": plain, "name": said.name}))
