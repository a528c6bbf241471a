// What every peer on Node is asked, the same way as `measuring.py` asks those on Python.
import { setTimeout as sleep } from "node:timers/promises";

export const CALLERS = 64;
export const BATCH = 100;
const WAIT_MS_MAX = 60_000;

export class Tally {
  count = 0;
  firstAt = 0;
  lastAt = 0;
  wake = () => {};

  done() {
    this.lastAt = performance.now();
    if (this.count === 0) this.firstAt = this.lastAt;
    this.count += 1;
    this.wake();
  }

  async until(count) {
    const ends = performance.now() + WAIT_MS_MAX;
    while (this.count < count) {
      if (performance.now() > ends) throw new Error(`only ${this.count} of ${count} jobs were run`);
      await Promise.race([new Promise((resolve) => (this.wake = resolve)), sleep(1_000)]);
    }
  }
}

export async function perSecond(one, callers, seconds) {
  await one();
  const began = performance.now();
  const ends = began + 1000 * seconds;
  let made = 0;
  const call = async () => {
    while (performance.now() < ends) {
      await one();
      made += 1;
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  return (1000 * made) / (performance.now() - began);
}

export async function enqueue(one, many, seconds) {
  return {
    enqueue_1: await perSecond(one, 1, seconds),
    enqueue_64: await perSecond(one, CALLERS, seconds),
    bulk_100: BATCH * (await perSecond(() => many(BATCH), 1, seconds)),
  };
}

export async function drained(tally, jobs) {
  await tally.until(jobs);
  return (1000 * (jobs - 1)) / (tally.lastAt - tally.firstAt);
}

export async function pickUps(tally, one, times) {
  const took = [];
  for (let turn = 0; turn < times; turn += 1) {
    await sleep(20);
    const before = tally.count;
    const began = performance.now();
    await one();
    await tally.until(before + 1);
    took.push(tally.lastAt - began);
  }
  took.sort((a, b) => a - b);
  const at = (share) => took[Math.min(took.length - 1, Math.floor(share * took.length))];
  return { pick_up_p50_ms: at(0.5), pick_up_p99_ms: at(0.99) };
}

export function tell(measure) {
  const given = JSON.parse(process.argv[2]);
  const place = { host: given.host, user: given.user, password: given.password, database: given.dbname, port: 5432 };
  measure(place).then(
    (found) => {
      console.log(`\n${JSON.stringify(found)}`);
      process.exit(0);
    },
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}
