const PLANS = ["free", "emerald", "ruby"];

export const schema = {
  output: {
    type: "object",
    properties: { email: { type: "string" }, name: { type: "string" }, plan: { type: "string" } },
    required: ["email", "name", "plan"],
    additionalProperties: false,
  },
};

/** Look up a customer by email. */
export default ({ email }: { email: string }) => {
  const number = Number(email.slice(4, 8));
  return { email, name: `Customer ${number}`, plan: PLANS[number % PLANS.length] };
};
