// A publisher of MQTT.js that keeps a window of messages under way: see publisher_program.py.
"use strict";
const mqtt = require("mqtt");

const asked = JSON.parse(process.argv[2]);
const client = mqtt.connect(`mqtt://${asked.host}:${asked.port}`, {
  clientId: asked.client_id,
  protocolVersion: asked.version,
  protocolId: asked.version === 3 ? "MQIsdp" : "MQTT",
  clean: false,
  reconnectPeriod: 100,
  ...(asked.version === 5 ? { properties: { sessionExpiryInterval: 3600 } } : {}),
});
client.on("error", () => {});
let number = 0;
let underWay = 0;
let isEnding = false;

function fill() {
  while (underWay < asked.window && !isEnding) {
    const own = number++;
    underWay += 1;
    client.publish(asked.topic, String(own), { qos: asked.qos }, (error) => {
      underWay -= 1;
      process.stdout.write(error ? `failed ${own} ${error.message}\n` : `ok ${own}\n`);
      setImmediate(fill);
    });
  }
  if (isEnding && underWay === 0) client.end(false, {}, () => process.exit(0));
}

process.stdin.on("end", () => {
  isEnding = true;
  fill();
});
process.stdin.resume();
client.once("connect", fill);
