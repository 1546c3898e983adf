// A daemon of the build under test, and clients that protoc-gen-es made from its schema.
import { execFileSync, spawn } from "node:child_process";
import { cpSync, mkdtempSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
export const root = resolve(here, "../..");
export const build = resolve(process.env.LOSSD_BUILD ?? join(root, "build"));
export const buf = join(here, "node_modules/.bin/buf");
export const folder = mkdtempSync(join(tmpdir(), "lossd-clients-"));
export const bodyLimit = 2_000_000;
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

// Modules have to lie beside node_modules to find their imports.
export async function generated() {
  const out = join(folder, "gen");
  mkdirSync(out);
  symlinkSync(join(here, "node_modules"), join(out, "node_modules"));
  writeFileSync(join(out, "package.json"), '{"type":"module"}');
  cpSync(join(here, "error_details.proto"), join(out, "error_details.proto"));
  execFileSync("protoc", [
    `--plugin=protoc-gen-es=${join(here, "node_modules/.bin/protoc-gen-es")}`,
    `--es_out=${out}`, "--es_opt=target=js,import_extension=js",
    "-I", join(root, "proto"), "-I", out,
    "lossd/v1/config.proto", "lossd/v1/group.proto", "lossd/v1/loss.proto", "grpc/health/v1/health.proto",
    "error_details.proto",
  ]);
  const load = (name) => import(pathToFileURL(join(out, name)));
  return {
    ...(await load("lossd/v1/loss_pb.js")),
    ...(await load("lossd/v1/group_pb.js")),
    ...(await load("grpc/health/v1/health_pb.js")),
    ...(await load("error_details_pb.js")),
  };
}

export async function startDaemon() {
  const unix = join(folder, "lossd.sock");
  const log = join(folder, "sanitizer");
  const config = join(folder, "config.json");
  const limits = { json_body_bytes: bodyLimit, proto_body_bytes: bodyLimit };
  writeFileSync(config, JSON.stringify({ listen: ["127.0.0.1:0", `unix:${unix}`], limits }));
  const options = `log_path=${log}:detect_leaks=1`;
  const child = spawn(join(build, "daemon/lossd"), ["--config", config], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, ASAN_OPTIONS: options, UBSAN_OPTIONS: options, TSAN_OPTIONS: `log_path=${log}` },
  });
  let text = "";
  const tcp = await new Promise((done, failed) => {
    child.on("exit", (code) => failed(new Error(`lossd ended with ${code}: ${text}`)));
    child.stderr.on("data", (chunk) => {
      text += chunk;
      const lines = text.split("\n").filter((line) => line.includes("listening on"));
      if (lines.length >= 2) done(lines.join(" ").match(/127\.0\.0\.1:\d+/)[0]);
    });
  });
  return {
    tcp, unix,
    stop: () => new Promise((done, failed) => {
      child.removeAllListeners("exit");
      child.on("exit", (code) => {
        const reports = readdirSync(folder).filter((name) => name.startsWith("sanitizer"));
        const read = reports.map((name) => readFileSync(join(folder, name), "utf8")).join("\n");
        code === 0 && !reports.length ? done() : failed(new Error(`lossd ended with ${code}: ${text} ${read}`));
      });
      child.kill("SIGTERM");
    }),
  };
}
