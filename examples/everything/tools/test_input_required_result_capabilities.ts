import { form, question } from "../lib/forms";

/** Asks only what the client can answer */
export default async (_: {}, ctx: Spile.Context) => {
  const asked: [string, Promise<unknown>][] = [];
  if (ctx.supports("elicitation")) {
    const schema = form({ value: { type: "string" } });
    asked.push(["elicit_input", ctx.elicit("elicit_input", { message: "Elicitation input", schema })]);
  }
  if (ctx.supports("sampling"))
    asked.push(["sample_input", ctx.sample("sample_input", question("Sample request", 50))]);
  if (asked.length === 0) return "No supported capabilities declared";
  await Promise.all(asked.map(([, answer]) => answer));
  return `capabilities-ok: received ${asked.map(([key]) => key).join(",")}`;
};
