// Where a dragged panel would come to lie.
import { type Node, places, type Side } from "./split";

/** Shares of a panel's place from its edge in that dropping puts a panel beside it instead of over it. */
const EDGE = 0.28;
/** Pixels from the edge of all panels in that dropping puts a panel beside all of them. */
const OUTER_PX = 14;

/** Where a dragged panel would come to lie, as shares of the area. */
export interface Aim {
  beside: string | null;
  side: Side;
}

/** Finds what lies at a point of the area, given as shares of it; `null` outside of it and where no panel is. */
export function aimAt(root: Node | null, x: number, y: number, widthPx: number, heightPx: number): Aim | null {
  if (x < 0 || y < 0 || x > 1 || y > 1) return null;
  if (x * widthPx < OUTER_PX) return { beside: null, side: "left" };
  if ((1 - x) * widthPx < OUTER_PX) return { beside: null, side: "right" };
  if (y * heightPx < OUTER_PX) return { beside: null, side: "top" };
  if ((1 - y) * heightPx < OUTER_PX) return { beside: null, side: "bottom" };
  const place = places(root).find((p) => x >= p.x && x <= p.x + p.width && y >= p.y && y <= p.y + p.height);
  if (!place) return null;
  const [u, v] = [(x - place.x) / place.width, (y - place.y) / place.height];
  const edges = [[u, "left"], [1 - u, "right"], [v, "top"], [1 - v, "bottom"]] as const;
  const [near, side] = edges.reduce((a, b) => (b[0] < a[0] ? b : a));
  return { beside: place.stack.shown, side: near < EDGE ? side : "middle" };
}
