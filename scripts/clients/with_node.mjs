// The official client for JavaScript.

import OpenAI from "openai";

const [url, question, expected] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused" });
const messages = [{ role: "user", content: question }];

function same(what, given, wanted) {
  if (given !== wanted) {
    console.error(`${what}: ${JSON.stringify(given)} instead of ${JSON.stringify(wanted)}`);
    process.exit(1);
  }
  console.log(`  ${what}`);
}

const answer = await client.chat.completions.create({ model: "dragon", messages });
same("chat", answer.choices[0].message.content, expected);
let text = "";
for await (const chunk of await client.chat.completions.create({ model: "dragon", messages, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
same("streamed chat", text, expected);
same("response", (await client.responses.create({ model: "dragon", input: question })).output_text, expected);
same("embeddings", (await client.embeddings.create({ model: "dragon", input: ["a", "b"] })).data.length, 2);
