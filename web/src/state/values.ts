// The newest value of each channel, and what is known of its stream: period, rate, and whether its times are in sight.
// Plain maps: thousands of values change many times a second, and components read them again with each pulse.
import type { Channel, ServerMessage, Snapshot, StateRow, WireValue } from "../connection/message";
import { brief, toNumber } from "../connection/message";
import { Digits, type Rounding } from "../text/number";
import { Periods } from "./period";
import { Rates } from "./rates";
import { Sights } from "./sight";
import { type Age, ageOf, isCurrent, isNewer } from "./stale";

type Update = Extract<ServerMessage, { type: "update" }>;

/** The newest value of a channel that reached the page. */
export interface Latest {
  value: WireValue;
  timeNs: bigint;
  receiveNs: bigint;
  stream: number;
  recorded: boolean;
}

/** When a value counts as received: in a playback at its own time if it was received later. */
function seenNs(receiveNs: bigint, timeNs: bigint, isReplay: boolean): bigint {
  return isReplay && timeNs < receiveNs ? timeNs : receiveNs;
}

export class Values {
  private readonly latest = new Map<number, Latest>();
  private periods = new Periods();
  private readonly digits = new Map<number, Digits>();
  readonly rates = new Rates();
  readonly sights = new Sights();

  /** Forgets everything: numbers of channels may now stand for others. */
  forget(): void {
    this.latest.clear();
    this.periods = new Periods();
    this.digits.clear();
    this.rates.clear();
    this.sights.clear();
  }

  /** Forgets the values alone: rows that were shown are no longer part of the picture. */
  clear(): void {
    this.latest.clear();
  }

  of(id: number): Latest | null {
    return this.latest.get(id) ?? null;
  }

  /** Whether the value of a channel is worth asking for: there is none, or it may have changed while nobody looked. */
  isAsked(id: number, now: bigint | null): boolean {
    const known = this.latest.get(id);
    return !known || now === null || !isCurrent(known.receiveNs, now);
  }

  /** Takes values of an instant where nothing newer is known. */
  know(state: StateRow[], now: bigint | null): void {
    for (const { channel, value, time, receive_time, period_ns } of state) {
      this.periods.learnt(channel.stream, period_ns ? BigInt(period_ns) : null);
      if (time === null) continue;
      const timeNs = BigInt(time);
      const receiveNs = receive_time === null ? timeNs : BigInt(receive_time);
      const known = this.latest.get(channel.id);
      if (known && now !== null && (!this.isAsked(channel.id, now) || !isNewer(receiveNs, known.receiveNs, now))) continue;
      this.latest.set(channel.id, { value: brief(value, channel.type), timeNs, receiveNs, stream: channel.stream, recorded: true });
    }
  }

  /** Takes the last values before the instant at which a playback stands. */
  snapshot(message: Snapshot): void {
    for (const { stream, channels } of message.streams) {
      for (const [id, value, time, receive] of channels) {
        const timeNs = BigInt(time);
        this.latest.set(id, { value, timeNs, receiveNs: receive === null ? timeNs : seenNs(BigInt(receive), timeNs, true), stream, recorded: true });
      }
    }
  }

  /** Takes an update of a subscription. */
  update(message: Update, isReplay: boolean): void {
    const now = BigInt(message.time);
    for (const window of message.streams) {
      const timeNs = BigInt(window.time[1]);
      const receiveNs = seenNs(BigInt(window.receive_time), timeNs, isReplay);
      this.periods.received(window.stream, receiveNs);
      this.sights.received(window.stream, [BigInt(window.time[0]), timeNs], receiveNs);
      let frames = 0;
      for (const [id, count, , last] of window.channels) {
        if (count > frames) frames = count;
        if (count <= 0) continue;
        const known = this.latest.get(id);
        if (known) {
          if (!isReplay && receiveNs !== known.receiveNs && !isNewer(receiveNs, known.receiveNs, now)) continue;
          // A late value is not the newest while newer ones come beside it.
          if (timeNs < known.timeNs && isCurrent(known.receiveNs, now)) continue;
          known.value = last;
          known.timeNs = timeNs;
          known.receiveNs = receiveNs;
          known.recorded = window.recorded;
        } else {
          this.latest.set(id, { value: last, timeNs, receiveNs, stream: window.stream, recorded: window.recorded });
        }
      }
      if (window.from_row !== null && window.to_row !== null) {
        frames = Number(BigInt(window.to_row) - BigInt(window.from_row));
      }
      this.rates.count(message.id, window.stream, frames, now);
    }
  }

  /** A channel's newest value in words. */
  text(channel: Channel, rounding: Rounding | null = null): string {
    const latest = this.latest.get(channel.id);
    if (!latest) return "–";
    // Learnt from however it is written: other panels show it, too.
    const text = this.digitsOf(channel).newest(latest.value, channel.type, latest.receiveNs);
    return rounding === null ? text : this.words(channel, latest.value, rounding);
  }

  /** Any value of a channel in words, with the channel's digits or as a panel rounds. */
  words(channel: Channel, value: WireValue, rounding: Rounding | null = null): string {
    return this.digitsOf(channel).write(value, channel.type, rounding);
  }

  private digitsOf({ id }: Channel): Digits {
    let digits = this.digits.get(id);
    if (!digits) this.digits.set(id, (digits = new Digits()));
    return digits;
  }

  /** Extremes of a span in words. They include the newest value, which may have come by another subscription. */
  extremes(channel: Channel, extent: { min: number; max: number } | null, rounding: Rounding | null = null): { min: string; max: string } | null {
    if (extent === null) return null;
    const newest = toNumber(this.latest.get(channel.id)?.value ?? null);
    const min = newest === null ? extent.min : Math.min(extent.min, newest);
    const max = newest === null ? extent.max : Math.max(extent.max, newest);
    return { min: this.words(channel, min, rounding), max: this.words(channel, max, rounding) };
  }

  /** Age of a channel's value at an instant, on a screen that is alive or not. */
  age(channel: Channel, now: bigint | null, isAlive: boolean): Age {
    const period = channel.expected_period_ns === null ? null : BigInt(channel.expected_period_ns);
    return ageOf(this.latest.get(channel.id)?.receiveNs ?? null, now, period, isAlive, this.periods.get(channel.stream));
  }
}
