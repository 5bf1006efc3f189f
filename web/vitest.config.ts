import { defineConfig } from "vitest/config";

// Unit tests: pure modules only, beside the code.
export default defineConfig({ test: { include: ["src/**/*.test.ts"], environment: "node" } });
