// Clients that others made against the running daemon: connect-es, buf curl (which is connect-go), curl.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { bodyLimit, buf, build, folder, generated, root, startDaemon } from "./support.mjs";

const run = promisify(execFile);
const schema = await generated();
const bce = { tasks: [{ name: "t", losses: [{ loss: { case: "binaryCrossEntropy", value: {} } }] }] };
let daemon;
let names = 0;

before(async () => { daemon = await startDaemon(); });
after(async () => { await daemon.stop(); });

// Logit 0, label 1: loss ln 2, gradient -1/2 over the candidates.
const batch = (count) => ({
  lengths: [count],
  tasks: [{ name: "t", logits: Array(count).fill(0), labels: Array(count).fill(1) }],
});

async function failure(promise) {
  const error = await promise.then(() => assert.fail("the call was answered"), (e) => ConnectError.from(e));
  const [info] = error.findDetails(schema.ErrorInfoSchema);
  assert.equal(info?.domain, "lossd", String(error));
  return { code: Code[error.code], reason: info.reason, metadata: info.metadata, error };
}

for (const binary of [false, true]) {
  for (const unix of [false, true]) {
    describe(`connect-es, ${binary ? "binary" : "JSON"}, ${unix ? "Unix socket" : "TCP"}`, () => {
      let transport, losses, groups;
      before(() => {
        transport = createConnectTransport({
          baseUrl: unix ? "http://localhost" : `http://${daemon.tcp}`,
          httpVersion: "1.1",
          useBinaryFormat: binary,
          useHttpGet: true,
          nodeOptions: unix ? { socketPath: daemon.unix } : {},
        });
        losses = createClient(schema.LossService, transport);
        groups = createClient(schema.GroupService, transport);
      });

      async function joined(world) {
        const group = `es${names++}`;
        for (let rank = 0; rank < world; rank++)
          await groups.joinGroup({ group, rank, worldSize: world, config: bce, instance: 2n ** 64n - 1n - BigInt(rank) });
        return group;
      }

      test("two ranks compute a step", async () => {
        const group = await joined(2);
        const [a, b] = await Promise.all([
          losses.computeLoss({ group, rank: 0, step: 9007199254740991n, ...batch(6) }),
          losses.computeLoss({ group, rank: 1, step: 9007199254740991n, ...batch(2) }),
        ]);
        assert.equal(a.step, 9007199254740991n);
        assert.equal(a.candidateFactor, 1.5);
        assert.deepEqual(a.tasks[0].gradient, Array(6).fill(-0.125));
        assert.ok(Math.abs((a.loss + b.loss) / 2 - Math.LN2) < 1e-7);
        assert.equal(a.replayed, false);
        assert.deepEqual([a.world.requests, a.world.candidates, a.world.ranks], [2, 8, 2]);
      });

      test("an empty batch gives zeros that are there", async () => {
        const answer = await losses.computeLoss({ group: await joined(1), tasks: [{ name: "t" }] });
        assert.equal(answer.loss, 0);
        assert.deepEqual(answer.tasks[0].gradient, []);
      });

      test("an error is found by its reason", async () => {
        const { code, reason, metadata } = await failure(losses.computeLoss({ group: "nobody", ...batch(1) }));
        assert.deepEqual([code, reason, metadata.group], ["NotFound", "GROUP_NOT_FOUND", "nobody"]);
      });

      test("a wrong shape names its field", async () => {
        const group = await joined(1);
        const { code, reason, error } = await failure(losses.computeLoss({ group, ...batch(3), lengths: [2] }));
        assert.deepEqual([code, reason], ["InvalidArgument", "SHAPE_MISMATCH"]);
        const [bad] = error.findDetails(schema.BadRequestSchema);
        assert.equal(bad.fieldViolations[0].field, "tasks[0].logits");
      });

      test("NaN is refused by name", async () => {
        const group = await joined(1);
        const wrong = batch(2);
        wrong.tasks[0].logits[1] = NaN;
        const { reason, error } = await failure(losses.computeLoss({ group, ...wrong }));
        assert.equal(reason, "NONFINITE_LOGITS");
        assert.match(error.rawMessage, /tasks\[0\]\.logits\[1\]/);
      });

      test("the server answers at the deadline and the counts stay", async () => {
        const group = await joined(2);
        // The header alone: with timeoutMs the client's own timer may end the call first.
        const call = losses.computeLoss({ group, rank: 0, step: 1n, ...batch(6) }, { headers: { "Connect-Timeout-Ms": "300" } });
        const { code, reason, metadata } = await failure(call);
        assert.deepEqual([code, reason, metadata.missing_ranks], ["DeadlineExceeded", "PEER_WAIT_DEADLINE", "1"]);
        const late = await losses.computeLoss({ group, rank: 1, step: 1n, ...batch(2) }, { timeoutMs: 20000 });
        assert.equal(late.world.candidates, 8);
      });

      test("the client's own deadline", async () => {
        const group = await joined(2);
        const call = losses.computeLoss({ group, rank: 0, step: 1n, ...batch(6) }, { timeoutMs: 250 });
        const error = await call.then(() => assert.fail(), (e) => ConnectError.from(e));
        assert.equal(error.code, Code.DeadlineExceeded);
      });

      test("read-only methods go by GET", async () => {
        const group = await joined(2);
        const answer = await groups.getGroup({ group });
        assert.equal(answer.group.name, group);
        assert.equal(answer.group.ranks.length, 2);
        assert.ok((await groups.listGroups({})).groups.length > 0);
        assert.equal((await failure(groups.getGroup({ group: "g ü/+&=" }))).metadata.group, "g ü/+&=");
      });

      test("health", async () => {
        const health = createClient(schema.Health, transport);
        assert.equal((await health.check({})).status, 1);
        assert.equal((await failure(health.check({ service: "x" }))).code, "NotFound");
      });

      test("a body over the limit is refused in words, 20 times of 20", async () => {
        const logits = Array(1_000_000).fill(1.5);
        const large = { group: "big", lengths: [1_000_000], tasks: [{ name: "t", logits, labels: logits }] };
        for (let i = 0; i < 20; i++) {
          const { code, reason } = await failure(losses.computeLoss(large));
          assert.deepEqual([code, reason], ["ResourceExhausted", "REQUEST_TOO_LARGE"]);
        }
      });
    });
  }
}

describe("buf", () => {
  let binpb;
  before(async () => {
    binpb = join(folder, "lossd.binpb");
    const lossctl = join(build, "client/lossctl");
    assert.ok(existsSync(lossctl), "lossctl was not built");
    const { stdout } = await run(lossctl, ["schema"], { encoding: "buffer", maxBuffer: 1 << 24 });
    writeFileSync(binpb, stdout);
  });

  const curl = (method, request, { unix = false, more = [] } = {}) => run(buf, [
    "curl", "--schema", binpb, "--data", JSON.stringify(request), ...more,
    ...(unix ? ["--unix-socket", daemon.unix] : []),
    `http://${unix ? "localhost" : daemon.tcp}/lossd.v1.${method}`,
  ]);
  const config = { tasks: [{ name: "t", losses: [{ binaryCrossEntropy: {} }] }] };

  for (const unix of [false, true]) {
    test(`buf curl computes a step, ${unix ? "Unix socket" : "TCP"}`, async () => {
      const group = `buf${names++}`;
      await curl("GroupService/JoinGroup", { group, worldSize: 1, config }, { unix });
      const { stdout } = await curl("LossService/ComputeLoss", { group, ...batch(4) }, { unix });
      const answer = JSON.parse(stdout);
      assert.deepEqual(answer.tasks[0].gradient, [-0.125, -0.125, -0.125, -0.125]);
      assert.ok(Math.abs(answer.loss - Math.LN2) < 1e-7);
    });

    test(`buf curl exits with the code of the error, ${unix ? "Unix socket" : "TCP"}`, async () => {
      const error = await curl("GroupService/GetGroup", { group: "nobody" }, { unix }).then(() => assert.fail(), (e) => e);
      assert.equal(error.code, 40); // not_found
      assert.match(error.stderr, /GROUP_NOT_FOUND|nobody/);
    });

    test(`buf curl keeps its deadline, ${unix ? "Unix socket" : "TCP"}`, async () => {
      const group = `buf${names++}`;
      for (const rank of [0, 1]) await curl("GroupService/JoinGroup", { group, rank, worldSize: 2, config }, { unix });
      const call = curl("LossService/ComputeLoss", { group, rank: 0, step: 1, ...batch(1) }, { unix, more: ["--timeout", "1s"] });
      const error = await call.then(() => assert.fail(), (e) => e);
      assert.equal(error.code, 32, error.stderr); // deadline_exceeded
    });
  }

  test("the schema passes buf lint", async () => {
    await run(buf, ["lint", "proto"], { cwd: root });
  });

  test("lossctl's schema is the schema of proto/", async () => {
    const built = join(folder, "built.binpb");
    await run(buf, ["build", "proto", "-o", built], { cwd: root });
    await run(buf, ["breaking", binpb, "--against", built], { cwd: root });
    await run(buf, ["breaking", built, "--against", binpb], { cwd: root });
  });
});

describe("curl", () => {
  for (const unix of [false, true]) {
    test(`JSON by hand, ${unix ? "Unix socket" : "TCP"}`, async () => {
      const group = `curl${names++}`;
      const post = async (path, text, ...more) => {
        const { stdout } = await run("curl", ["-sS", "-w", "\n%{http_code}", "-H", "Content-Type: application/json", "-d", text,
          ...more, ...(unix ? ["--unix-socket", daemon.unix] : []), `http://${unix ? "localhost" : daemon.tcp}/lossd.v1.${path}`]);
        const lines = stdout.trimEnd().split("\n");
        return [Number(lines.pop()), JSON.parse(lines.join("\n"))];
      };
      const config = '{"tasks": [{"name": "t", "losses": [{"binary_cross_entropy": {}}]}]}';
      assert.equal((await post("GroupService/JoinGroup", `{"group": "${group}", "world_size": 1, "config": ${config}}`))[0], 200);
      const [status, answer] = await post("LossService/ComputeLoss",
        `{"group": "${group}", "lengths": [2], "tasks": [{"name": "t", "logits": [0, 0], "labels": [1, 1]}]}`);
      assert.equal(status, 200);
      assert.deepEqual(answer.tasks[0].gradient, [-0.25, -0.25]);
      assert.equal(answer.replayed, false); // zeros and defaults are written
      const [bad, error] = await post("LossService/ComputeLoss", `{"group": "${group}", "group": "x"}`);
      assert.deepEqual([bad, error.code], [400, "invalid_argument"]);
      // A file of more than 1 MB: curl asks first (Expect: 100-continue).
      const file = join(folder, "large.json");
      writeFileSync(file, `{"group": "${group}"}`.padEnd(bodyLimit));
      assert.equal((await post("GroupService/GetGroup", "@" + file))[0], 200);
      writeFileSync(file, `{"group": "${group}"}`.padEnd(bodyLimit + 1));
      assert.equal((await post("GroupService/GetGroup", "@" + file))[0], 429);
    });
  }
});
