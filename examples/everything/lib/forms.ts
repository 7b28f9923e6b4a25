type Field = Record<string, unknown>;

/** A form in which every field is required. */
export const form = (properties: Record<string, Field>) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
});

export const NAME = form({ name: { type: "string" } });
export const CONFIRM = form({ confirm: { type: "boolean" } });

/** Asks for a field of a form. Ends the call with a text if the user does not answer. */
export const ask = async (ctx: Spile.Context, key: string, message: string, schema: object) => {
  const answer = await ctx.elicit<any>(key, { message, schema });
  if (answer.action === "accept") return answer.content;
  throw new Error(answer.action === "decline" ? "The user declined to answer." : "The user closed the question.");
};

export const askName = async (ctx: Spile.Context) => (await ask(ctx, "user_name", "What is your name?", NAME)).name;

/** The request of a sampling with one message. */
export const question = (text: string, maxTokens: number): Spile.SampleRequest => ({
  messages: [{ role: "user", content: { type: "text", text } }],
  maxTokens,
});

/** The text of a sampled message. */
export const textOf = (message: any) => [message.content].flat()[0].text;
