const PLANS = ["free", "emerald", "ruby"];

/** Look up a customer by email. */
export default ({ email }: { email: string }) => {
  const number = Number(email.slice(4, 8));
  return { email, name: `Customer ${number}`, plan: PLANS[number % PLANS.length] };
};
