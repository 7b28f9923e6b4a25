/** Lets the stream end mid-call; the answer is there on return */
export default async (_: {}, ctx: Spile.Context) => {
  ctx.closeStream(500);
  await ctx.sleep(100);
  return "Reconnection test completed successfully: the stream ended and was taken up again";
};
