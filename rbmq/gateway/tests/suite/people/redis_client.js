// node-redis and ioredis with a gateway. The argument is the port.
const assert = require('assert');
const port = Number(process.argv[2]);

/** A promise of the next call. */
function next() {
  let call;
  const promise = new Promise((resolve) => { call = (...values) => resolve(values); });
  return { promise, call };
}

async function nodeRedis(RESP) {
  const { createClient } = require('redis');
  const client = createClient({ socket: { port }, RESP });
  await client.connect();
  const subscriber = client.duplicate();
  await subscriber.connect();
  const [plain, pattern] = [next(), next()];
  await subscriber.subscribe('node', plain.call);
  await subscriber.pSubscribe('no*', pattern.call);
  assert.strictEqual(await client.publish('node', 'hello'), 2);
  assert.deepStrictEqual(await plain.promise, ['hello', 'node']);
  assert.deepStrictEqual(await pattern.promise, ['hello', 'node']);
  assert.strictEqual(await client.ping(), 'PONG');
  assert.deepStrictEqual(await client.multi().publish('x', '1').publish('node', '2').exec(), [0, 2]);
  await subscriber.unsubscribe();
  await assert.rejects(client.get('key'), /key-value store/);
  await subscriber.close();
  await client.close();
}

async function ioRedis() {
  const Redis = require('ioredis');
  const [client, subscriber] = [new Redis(port), new Redis(port)];
  const message = next();
  assert.strictEqual(await subscriber.subscribe('io', 'other'), 2);
  subscriber.on('message', message.call);
  assert.strictEqual(await client.publish('io', 'hello'), 1);
  assert.deepStrictEqual(await message.promise, ['io', 'hello']);
  assert.deepStrictEqual(await client.multi().publish('x', '1').exec(), [[null, 0]]);
  await subscriber.quit();
  await client.quit();
}

(async () => {
  await nodeRedis(2);
  await nodeRedis(3);
  await ioRedis();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
