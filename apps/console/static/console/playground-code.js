// The request as curl, Python or JavaScript; each reads the API key from the environment, no page has one.

export function snippet(language, url, body) {
  return { curl, python, javascript }[language](url, body);
}

function curl(url, body) {
  return [
    `curl ${url} \\`,
    '  -H "Authorization: Bearer $GATEWAY_API_KEY" \\',
    '  -H "Content-Type: application/json" \\',
    `  -d '${JSON.stringify(body, null, 2).replaceAll("'", "'\\''")}'`,
  ].join("\n");
}

function python(url, body) {
  const reads = body.stream
    ? ["for line in answer.iter_lines(decode_unicode=True):", "    print(line)"]
    : ["print(answer.json())"];
  return [
    "import os", "import requests", "",
    "answer = requests.post(",
    `    ${JSON.stringify(url)},`,
    '    headers={"Authorization": "Bearer " + os.environ["GATEWAY_API_KEY"]},',
    `    json=${literal(body, "    ")},`,
    `    stream=${body.stream ? "True" : "False"},`,
    "    timeout=120,", ")", "answer.raise_for_status()", ...reads,
  ].join("\n");
}

function javascript(url, body) {
  const reads = body.stream
    ? ["for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) process.stdout.write(piece);"]
    : ["console.log(await answer.json());"];
  return [
    `const answer = await fetch(${JSON.stringify(url)}, {`,
    '  method: "POST",',
    "  headers: {",
    "    Authorization: `Bearer ${process.env.GATEWAY_API_KEY}`,",
    '    "Content-Type": "application/json",',
    "  },",
    `  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")}),`,
    "});", ...reads,
  ].join("\n");
}

// A value as Python writes it.
function literal(value, indent) {
  const inner = `${indent}    `;
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return value.length ? `[\n${value.map((one) => `${inner}${literal(one, inner)},`).join("\n")}\n${indent}]` : "[]";
  if (typeof value === "object") {
    const members = Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${literal(one, inner)},`);
    return members.length ? `{\n${members.join("\n")}\n${indent}}` : "{}";
  }
  return JSON.stringify(value);
}
