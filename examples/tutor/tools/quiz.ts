type Arguments = {
  /** Only irregular verbs. */
  irregular?: boolean;
};

type Verb = { verb: string; spanish: string; past: string };

export const metadata = { title: "Quiz", annotations: { readOnlyHint: true, openWorldHint: false } };

/** Ask the user for the past simple of a verb, chosen at random, and say whether the answer is right. */
export default async ({ irregular = true }: Arguments, ctx: Spile.Context) => {
  const page = await ctx.collection("verbs").list({ irregular });
  const verbs = page.items as Verb[];
  const verb = verbs[Math.floor(Math.random() * verbs.length)];
  const reply = await ctx.elicit("past", {
    message: `What is the past simple of "${verb.verb}" (${verb.spanish})?`,
    schema: { type: "object", properties: { answer: { type: "string", title: "Past simple" } }, required: ["answer"] },
  });
  if (reply.action !== "accept") return { verb: verb.verb, outcome: "skipped" };
  const answer = String(reply.content.answer).trim().toLowerCase();
  return { verb: verb.verb, answer, right: answer === verb.past, past: verb.past };
};
