/** What a failure says to whoever looks at the page. */
export function told(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}
