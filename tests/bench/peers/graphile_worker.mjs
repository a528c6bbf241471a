// graphile-worker: local queue and batched completion as its documentation on performance has them.
import { createRequire } from "node:module";
import { BATCH, Tally, drained, enqueue, pickUps, tell } from "./measuring.mjs";

const require = createRequire(`${process.cwd()}/`);
const { makeWorkerUtils, run, Logger } = require("graphile-worker");
const { Pool } = require("pg");

const SECONDS = 2;
const JOBS = 20_000;
const logger = new Logger(() => () => {});

tell(async (place) => {
  const tally = new Tally();
  const pool = new Pool({ ...place, max: 10 });
  const utils = await makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  const one = () => utils.addJob("work", { n: 1 });
  const many = (batch) => utils.addJobs(Array.from({ length: batch }, () => ({ identifier: "work", payload: { n: 1 } })));
  const rates = await enqueue(one, many, SECONDS);
  await pool.query("delete from graphile_worker._private_jobs");
  for (let made = 0; made < JOBS; made += BATCH) await many(BATCH);
  const runner = await run({
    pgPool: pool,
    logger,
    noHandleSignals: true,
    taskList: { work: async () => tally.done() },
    preset: { worker: { concurrentJobs: 24, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
  });
  const drain = await drained(tally, JOBS);
  const latencies = await pickUps(tally, one, 100);
  await runner.stop();
  return { ...rates, drain, ...latencies };
});
