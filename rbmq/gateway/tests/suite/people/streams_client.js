// node-redis and ioredis with streams of a gateway. The argument is the port; `events/#` is kept.
const assert = require('assert');
const port = Number(process.argv[2]);

async function nodeRedis(RESP) {
  const { createClient } = require('redis');
  const client = createClient({ socket: { port }, RESP });
  await client.connect();
  const key = `events/node/${RESP}`;
  const ids = await Promise.all([1, 2, 3, 4].map((n) => client.xAdd(key, '*', { n: String(n) })));
  assert.strictEqual(await client.xLen(key), 4);
  const found = await client.xRange(key, '-', '+');
  assert.deepStrictEqual(found.map(({ id, message }) => [id, message.n]), ids.map((id, at) => [id, String(at + 1)]));
  assert.deepStrictEqual((await client.xRevRange(key, '+', '-', { COUNT: 1 })).map(({ id }) => id), [ids[3]]);
  const waiting = client.duplicate();
  await waiting.connect();
  const later = waiting.sendCommand(['XREAD', 'BLOCK', '60000', 'STREAMS', key, ids[3]]);
  const late = await client.xAdd(key, '*', { late: '1' });
  assert.ok(JSON.stringify(await later).includes(late));
  await assert.rejects(client.xAdd('elsewhere', '*', { a: '1' }), /keep = true/);
  await waiting.close();
  await client.close();
}

async function ioRedis() {
  const Redis = require('ioredis');
  const client = new Redis(port);
  const id = await client.xadd('events/io', '*', 'a', '1');
  assert.deepStrictEqual(await client.xread('COUNT', 1, 'STREAMS', 'events/io', '0'), [['events/io', [[id, ['a', '1']]]]]);
  assert.deepStrictEqual(await client.xrange('events/io', id, id), [[id, ['a', '1']]]);
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
