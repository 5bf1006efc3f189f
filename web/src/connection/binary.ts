// Live messages in binary, as docs/format/live.md has them, into what the same messages are in JSON. Kinds, types and
// endings that a later server adds are passed over; what is cut short or no such message throws.
import type {
  Bucket, CellNotes, HistorySeries, PlaybackBeat, ServerMessage, SourceBrief, StreamWindow, WindowCells, WireValue,
} from "./message";

/** The subprotocol to ask for. */
export const PROTOCOL = "strongback.live.1";

const UPDATE = 1;
const HISTORY = 2;
const HEARTBEAT = 3;
const PLAYBACK = 4;

const WINDOW_HEAD = 64;
const SERIES_HEAD = 16;
const SOURCE_HEAD = 20;

const RECORDED = 1;
const GAP = 2;
const ROWS = 4;
const NOTES = 8;

const ONE = 1;
const RANGE = 2;
const MEAN = 4;
const WIDE = 8;

const COMMIT = 1;
const LAST_DATA = 2;
const LOSSES = 4;

const PAUSED = 1;
const LOOP = 2;
const ENDED = 4;
const BEHIND = 8;
const PLAYBACK_LOSSES = 16;

/** count, first, last, min, max, mean */
type Cell = [number, WireValue, WireValue, WireValue, WireValue, WireValue];

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Reads a message; null if it is of a kind to pass over. Throws what is no message. */
export function decode(buffer: ArrayBuffer): ServerMessage | null {
  const rest = new Rest(new DataView(buffer), 0, buffer.byteLength);
  switch (rest.u8()) {
    case UPDATE: return update(rest);
    case HISTORY: return history(rest);
    case HEARTBEAT: return heartbeat(rest);
    case PLAYBACK: return playback(rest);
    default: return null;
  }
}

function update(rest: Rest): ServerMessage {
  rest.skip(3);
  const epoch = rest.u32();
  const id = Number(rest.i64());
  const time = String(rest.i64());
  const conflated = rest.u32();
  const dropped = rest.u32();
  const streams = rest.list(rest.u32(), () => window(rest.part(WINDOW_HEAD)));
  return { type: "update", id, epoch, time, streams, conflated, dropped };
}

function window(rest: Rest): StreamWindow {
  const stream = rest.u32();
  const flags = rest.u32();
  const count = rest.u32();
  const from = rest.u64();
  const to = rest.u64();
  const hasRows = (flags & ROWS) !== 0;
  const told: StreamWindow = {
    stream,
    from_row: hasRows ? String(from) : null,
    to_row: hasRows ? String(to) : null,
    committed: String(rest.u64()),
    recorded: (flags & RECORDED) !== 0,
    time: [String(rest.i64()), String(rest.i64())],
    receive_time: String(rest.i64()),
    gap: (flags & GAP) !== 0,
    channels: cells<WindowCells>(rest, count, (id, cell) => [id, ...cell], () => rest.u32()),
  };
  return flags & NOTES && told.channels.length === count ? { ...told, ...notes(rest) } : told;
}

function history(rest: Rest): ServerMessage {
  rest.skip(3);
  const streams = rest.u32();
  const id = Number(rest.i64());
  const count = rest.u32();
  const rows = Object.fromEntries(rest.list(streams, () => [String(rest.u32()), String(rest.u64())]));
  const series = rest.list(count, () => oneSeries(rest.part(SERIES_HEAD)));
  return { type: "history", id, series, rows };
}

function oneSeries(rest: Rest): HistorySeries {
  const channel = rest.u32();
  const gapCount = rest.u32();
  const count = rest.u32();
  const gaps = rest.list(gapCount, (): [string, string] => [String(rest.i64()), String(rest.i64())]);
  const buckets = cells<Bucket, string>(rest, count, (t0, cell) => [t0, ...cell], () => String(rest.i64()));
  return { channel, buckets, gaps, ...(buckets.length === count && !rest.isEmpty ? notes(rest) : {}) };
}

/** Notes of cells, up to one of a type that is not known. */
function notes(rest: Rest): CellNotes {
  const changed = rest.list(rest.u32(), () => rest.u32());
  const finite: [number, WireValue, WireValue][] = [];
  for (let left = rest.u32(); left > 0; left--) {
    const place = rest.u32();
    const value = VALUES[rest.u8()];
    if (value === undefined) break;
    finite.push([place, value(rest), value(rest)]);
  }
  return { ...(changed.length > 0 ? { changed } : {}), ...(finite.length > 0 ? { finite } : {}) };
}

function heartbeat(rest: Rest): ServerMessage {
  const flags = rest.u8();
  rest.skip(2);
  const epoch = rest.u32();
  const time = String(rest.i64());
  const lastData = String(rest.i64());
  const commitMs = rest.f64();
  const pointsPerS = rest.f64();
  const dropped = rest.u64();
  const count = rest.u32();
  const store = rest.text();
  const sources = rest.list(count, () => source(rest.part(SOURCE_HEAD)));
  return {
    type: "heartbeat", time, epoch, store, sources,
    commit_ms: flags & COMMIT ? commitMs : null,
    points_per_s: pointsPerS,
    ingest_dropped: Number(dropped),
    last_data: flags & LAST_DATA ? lastData : null,
    ...(flags & LOSSES ? { dropped: rest.u32() } : {}),
  };
}

function playback(rest: Rest): PlaybackBeat {
  const flags = rest.u8();
  rest.skip(2);
  const epoch = rest.u32();
  const time = String(rest.i64());
  const from = String(rest.i64());
  const to = String(rest.i64());
  const speed = rest.f64();
  const round = Number(rest.u64());
  const wall = String(rest.i64());
  const viewers = rest.u32();
  const store = rest.text();
  const id = rest.text();
  const name = rest.text();
  const has = (flag: number) => (flags & flag) !== 0;
  return {
    type: "heartbeat", time, epoch, store,
    playback: {
      id, name, from, to, at: time, speed, viewers, round, wall_ns: wall,
      paused: has(PAUSED), loop: has(LOOP), ended: has(ENDED), behind: has(BEHIND),
    },
    ...(has(PLAYBACK_LOSSES) ? { dropped: rest.u32() } : {}),
  };
}

function source(rest: Rest): SourceBrief {
  const rateHz = rest.f64();
  const lost = String(rest.u64());
  return { name: rest.text(), status: rest.text() as SourceBrief["status"], rate_hz: rateHz, lost };
}

/** Cells, each behind its key, up to one of a type that is not known: the size of that is not known either. */
function cells<Told, Key = number>(rest: Rest, count: number, join: (key: Key, cell: Cell) => Told, key: () => Key): Told[] {
  const all: Told[] = [];
  for (let i = 0; i < count; i++) {
    const of = key();
    const one = cell(rest);
    if (one === null) break;
    all.push(join(of, one));
  }
  return all;
}

function cell(rest: Rest): Cell | null {
  const value = VALUES[rest.u8()];
  const shape = rest.u8();
  if (value === undefined || (shape & ~(ONE | RANGE | MEAN | WIDE)) !== 0) return null;
  if (shape & ONE) {
    const only = value(rest);
    const bound = shape & RANGE ? only : null;
    return [1, only, only, bound, bound, shape & MEAN ? Number(only) : null];
  }
  const count = shape & WIDE ? Number(rest.u64()) : rest.u32();
  const first = value(rest);
  const last = value(rest);
  const min = shape & RANGE ? value(rest) : null;
  const max = shape & RANGE ? value(rest) : null;
  return [count, first, last, min, max, shape & MEAN ? rest.f64() : null];
}

/** How a value of each type is read, as JSON has it: 64 bits as digits, what is no number as a word. */
const VALUES: Readonly<Record<number, (rest: Rest) => WireValue>> = {
  1: (rest) => rest.u8() === 1,
  2: (rest) => (rest.u8() << 24) >> 24,
  3: (rest) => (rest.u16() << 16) >> 16,
  4: (rest) => rest.u32() | 0,
  5: (rest) => String(rest.i64()),
  6: (rest) => rest.u8(),
  7: (rest) => rest.u16(),
  8: (rest) => rest.u32(),
  9: (rest) => String(rest.u64()),
  10: (rest) => float(shortest(rest.f32())),
  11: (rest) => float(rest.f64()),
  12: (rest) => rest.text(),
};

/** As JSON: `"NaN"`, `"Infinity"`. */
function float(value: number): WireValue {
  return Number.isFinite(value) ? value : String(value);
}

/** The number with the fewest digits that is this `f32`: 0.1 rather than 0.10000000149011612. */
function shortest(value: number): number {
  if (!Number.isFinite(value) || Number.isInteger(value)) return value;
  for (let digits = 6; digits < 9; digits++) {
    const near = Number(value.toPrecision(digits));
    if (Math.fround(near) === value) return near;
  }
  return Number(value.toPrecision(9));
}

/** Bytes not yet read; reading beyond their end throws. */
class Rest {
  constructor(private readonly view: DataView, private at: number, private readonly end: number) {}

  /** Moves over `size` bytes; answers where they begin. */
  skip(size: number): number {
    const at = this.at;
    if (size > this.end - at) throw new RangeError("a live message that is cut short");
    this.at = at + size;
    return at;
  }

  /** A part that begins with its length, at least `least`; what follows the length. */
  part(least: number): Rest {
    const length = this.u32();
    if (length < least) throw new RangeError("a live message that is no such thing");
    const from = this.skip(length - 4);
    return new Rest(this.view, from, this.at);
  }

  /** `count` of what `one` reads. */
  list<T>(count: number, one: () => T): T[] {
    const all: T[] = [];
    for (let i = 0; i < count; i++) all.push(one());
    return all;
  }

  get isEmpty(): boolean {
    return this.at >= this.end;
  }

  u8(): number {
    return this.view.getUint8(this.skip(1));
  }

  u16(): number {
    return this.view.getUint16(this.skip(2), true);
  }

  u32(): number {
    return this.view.getUint32(this.skip(4), true);
  }

  u64(): bigint {
    return this.view.getBigUint64(this.skip(8), true);
  }

  i64(): bigint {
    return this.view.getBigInt64(this.skip(8), true);
  }

  f32(): number {
    return this.view.getFloat32(this.skip(4), true);
  }

  f64(): number {
    return this.view.getFloat64(this.skip(8), true);
  }

  text(): string {
    const size = this.u32();
    const from = this.skip(size);
    return utf8.decode(new Uint8Array(this.view.buffer, this.view.byteOffset + from, size));
  }
}
