// One conversation of MQTT.js with a broker, asked for as JSON in the first argument and told as
// JSON on standard output. Versions are as MQTT.js numbers them: 3 (MQIsdp), 4, 5.
"use strict";
const fs = require("node:fs");
const mqtt = require("mqtt");

const asked = JSON.parse(process.argv[2]);

function options(clientId, stays, more) {
  const found = {
    clientId,
    protocolVersion: asked.version,
    protocolId: asked.version === 3 ? "MQIsdp" : "MQTT",
    clean: !stays,
    reconnectPeriod: 0,
    connectTimeout: 15000,
    ...more,
  };
  if (asked.version === 5) found.properties = { sessionExpiryInterval: stays ? 3600 : 0 };
  if (asked.ca) found.ca = fs.readFileSync(asked.ca);
  return found;
}

// The listener stands before the connection: a stored session's messages follow CONNACK at once.
async function join(clientId, stays = false, more = {}) {
  const client = mqtt.connect(asked.url, options(clientId, stays, more));
  const received = [];
  let wake = () => {};
  client.on("message", (topic, payload, packet) => {
    const found = { topic, payload: payload.toString("latin1"), qos: packet.qos, retain: packet.retain };
    if (packet.properties) {
      const { userProperties, contentType, correlationData } = packet.properties;
      if (userProperties) found.user = { ...userProperties };
      if (contentType) found.contentType = contentType;
      if (correlationData) found.correlation = correlationData.toString("latin1");
    }
    received.push(found);
    wake();
  });
  const present = await new Promise((resolve, reject) => {
    client.once("connect", (connack) => resolve(connack.sessionPresent));
    client.once("error", reject);
    client.once("close", () => reject(new Error("closed before CONNACK")));
  });
  async function take(count) {
    while (received.length < count) {
      await new Promise((resolve, reject) => {
        wake = resolve;
        client.once("close", () => reject(new Error(`closed with ${received.length} messages`)));
      });
    }
    return received.splice(0, count);
  }
  return { client, present, take, left: () => received.length };
}

async function granted(joined, filter, qos) {
  const answer = await joined.client.subscribeAsync(filter, { qos });
  if (answer.length !== 1 || answer[0].qos !== qos) throw new Error(JSON.stringify(answer));
}

const conversations = {
  async messages({ name, qos, count, size }) {
    const subscriber = await join(`${name}s`);
    const publisher = await join(`${name}p`);
    await granted(subscriber, `${name}/+`, qos);
    const fill = "x".repeat(size);
    await Promise.all(
      Array.from({ length: count }, (_, number) =>
        publisher.client.publishAsync(`${name}/t`, `${number}${fill}`, { qos })),
    );
    const found = await subscriber.take(count);
    await publisher.client.endAsync();
    await subscriber.client.endAsync();
    return found;
  },
  async retained({ name }) {
    const publisher = await join(`${name}p`);
    await publisher.client.publishAsync(`${name}/kept`, "kept", { qos: 2, retain: true });
    await publisher.client.publishAsync(`${name}/gone`, "gone", { qos: 2, retain: true });
    await publisher.client.publishAsync(`${name}/gone`, "", { qos: 2, retain: true });
    const subscriber = await join(`${name}s`);
    await granted(subscriber, `${name}/#`, 2);
    await subscriber.client.publishAsync(`${name}/last`, "last", { qos: 2 });
    const found = await subscriber.take(2);
    await publisher.client.endAsync();
    await subscriber.client.endAsync();
    return found;
  },
  async will({ name }) {
    const watcher = await join(`${name}w`);
    await granted(watcher, `${name}/will/+`, 1);
    const will = (how) => ({ will: { topic: `${name}/will/${how}`, payload: "gone", qos: 1 } });
    const leaves = await join(`${name}a`, false, will("left"));
    await leaves.client.endAsync();
    const lost = await join(`${name}b`, false, will("lost"));
    lost.client.stream.destroy();
    const found = await watcher.take(1);
    await watcher.client.endAsync();
    return found;
  },
  async stays({ name, count }) {
    const first = await join(`${name}s`, true);
    await granted(first, `${name}/t`, 2);
    first.client.stream.destroy();
    const publisher = await join(`${name}p`);
    for (let number = 0; number < count; number += 1) {
      await publisher.client.publishAsync(`${name}/t`, `${number}`, { qos: 2 });
    }
    const again = await join(`${name}s`, true);
    const found = await again.take(count);
    await again.client.endAsync();
    await publisher.client.endAsync();
    return { before: first.present, after: again.present, found };
  },
  async properties({ name }) {
    const joined = await join(name);
    await granted(joined, `${name}/t`, 1);
    const properties = {
      contentType: "text/plain",
      correlationData: Buffer.from([0, 1, 255]),
      userProperties: { room: ["17", "18"] },
      responseTopic: `${name}/answers`,
      messageExpiryInterval: 100,
    };
    await joined.client.publishAsync(`${name}/t`, "x", { qos: 1, properties });
    const found = await joined.take(1);
    await joined.client.endAsync();
    return found;
  },
};

conversations[asked.conversation](asked).then(
  (said) => {
    process.stdout.write(JSON.stringify(said), () => process.exit(0));
  },
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
