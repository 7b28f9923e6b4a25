import { form } from "../lib/forms";

/** A prompt that asks for its context */
export default async (_: {}, ctx: Spile.Context) => {
  const message = "What context should the prompt use?";
  const schema = form({ context: { type: "string" } });
  const answer = await ctx.elicit("user_context", { message, schema });
  return `Prompt with context: ${answer.content?.context ?? "none"}`;
};
