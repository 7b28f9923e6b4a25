import { question, textOf } from "../lib/forms";

/** Asks the client's model for a capital */
export default async (_: {}, ctx: Spile.Context) => {
  const answer = await ctx.sample("capital_question", question("What is the capital of France?", 100));
  return `Sampling result: ${textOf(answer)}`;
};
