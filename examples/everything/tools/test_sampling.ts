import { question, textOf } from "../lib/forms";

type Arguments = {
  /** The prompt to send to the LLM */
  prompt: string;
};

/** Asks the client's model */
export default async ({ prompt }: Arguments, ctx: Spile.Context) =>
  `LLM response: ${textOf(await ctx.sample("completion", question(prompt, 100)))}`;
