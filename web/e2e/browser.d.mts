import type { Page } from "playwright-core";

export interface Browser {
  page: Page;
  problems: string[];
  close(): Promise<void>;
}
export function open(viewport?: { width: number; height: number }): Promise<Browser>;
