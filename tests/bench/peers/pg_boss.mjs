// pg-boss: batches of 100, the shortest polling interval that it takes.
import { createRequire } from "node:module";
import { BATCH, Tally, drained, enqueue, pickUps, tell } from "./measuring.mjs";

const require = createRequire(`${process.cwd()}/`);
const PgBoss = require("pg-boss");

const SECONDS = 2;
const JOBS = 20_000;

tell(async (place) => {
  const tally = new Tally();
  const boss = new PgBoss({ ...place, max: 10 });
  boss.on("error", console.error);
  await boss.start();
  await boss.createQueue("work");
  const one = () => boss.send("work", { n: 1 });
  const many = (batch) => boss.insert(Array.from({ length: batch }, () => ({ name: "work", data: { n: 1 } })));
  const rates = await enqueue(one, many, SECONDS);
  await boss.purgeQueue("work");
  for (let made = 0; made < JOBS; made += BATCH) await many(BATCH);
  let idle = false;
  const drainer = (async () => {
    while (!idle) {
      const jobs = await boss.fetch("work", { batchSize: BATCH });
      if (jobs.length) await boss.complete("work", jobs.map((job) => job.id));
      jobs.forEach(() => tally.done());
      idle = tally.count >= JOBS;
    }
  })();
  const drain = await drained(tally, JOBS);
  await drainer;
  await boss.work("work", { batchSize: 1, pollingIntervalSeconds: 0.5 }, async (jobs) => jobs.forEach(() => tally.done()));
  const latencies = await pickUps(tally, one, 20);
  return { ...rates, drain, ...latencies };
});
