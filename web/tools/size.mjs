// Fails the build when the page grows past its budget: what a first visit downloads, compressed.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const budgetBytes = 200 * 1024;
const dist = new URL("../dist", import.meta.url).pathname;

/** Every file under `dir`, as paths. */
function files(dir) {
  return readdirSync(dir).flatMap((name) => {
    const path = join(dir, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
}

const total = files(dist).reduce((sum, path) => sum + gzipSync(readFileSync(path)).length, 0);
const words = `page: ${(total / 1024).toFixed(1)} KiB compressed of ${budgetBytes / 1024} KiB`;
if (total > budgetBytes) {
  console.error(`${words}: over budget`);
  process.exit(1);
}
console.log(words);
