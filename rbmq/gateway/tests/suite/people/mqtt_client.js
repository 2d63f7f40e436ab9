// MQTT.js with a gateway: MQTT 3.1.1 and 5. The arguments are the port, and tcp or websockets.
const assert = require('assert');
const mqtt = require('mqtt');
const port = Number(process.argv[2]);
const protocol = process.argv[3] === 'websockets' ? 'ws' : 'mqtt';

async function subscribeAndPublish(protocolVersion) {
  const [one, other] = [0, 1].map(() => mqtt.connect({ protocol, port, host: '127.0.0.1', protocolVersion }));
  const messages = [];
  let arrived = () => {};
  one.on('message', (topic, payload, packet) => {
    messages.push([topic, payload.toString(), packet.qos]);
    arrived();
  });
  await one.subscribeAsync('node/#', { qos: 2 });
  for (const qos of [0, 1, 2]) {
    const next = new Promise((resolve) => { arrived = resolve; });
    await other.publishAsync(`node/${protocolVersion}`, `message ${qos}`, { qos });
    await next;
  }
  assert.deepStrictEqual(messages, [0, 1, 2].map((qos) => [`node/${protocolVersion}`, `message ${qos}`, qos]));
  await one.endAsync();
  await other.endAsync();
}

subscribeAndPublish(4).then(() => subscribeAndPublish(5)).catch((error) => {
  console.error(error);
  process.exit(1);
});
