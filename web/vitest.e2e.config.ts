import { defineConfig } from "vitest/config";

// End-to-end tests: the built page in a real browser against the real server; one at a time.
export default defineConfig({
  test: { include: ["e2e/**/*.test.ts"], environment: "node", fileParallelism: false, testTimeout: 120_000, hookTimeout: 300_000 },
});
