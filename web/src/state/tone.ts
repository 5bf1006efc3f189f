// The tone of alarms that nobody knows of: one short sound for a warning, two for a critical one, again every few seconds.
import type { AlarmLevel } from "../connection/message";

const EVERY_MS = 4_000;
const PITCH_HZ = { watch: 0, warning: 660, critical: 880 };

let audio: AudioContext | null = null;
let lastMs = -Infinity;

function beep(hz: number, after: number): void {
  if (!audio) return;
  const from = audio.currentTime + after;
  const [tone, volume] = [audio.createOscillator(), audio.createGain()];
  tone.frequency.value = hz;
  volume.gain.setValueAtTime(0, from);
  volume.gain.linearRampToValueAtTime(0.15, from + 0.02);
  volume.gain.linearRampToValueAtTime(0, from + 0.25);
  tone.connect(volume).connect(audio.destination);
  tone.start(from);
  tone.stop(from + 0.26);
}

/** Whether a tone would be heard: a browser lets no page sound before someone touched it. */
export function canSound(): boolean {
  return navigator.userActivation?.hasBeenActive === true;
}

/** Called now and then: sounds if it is time, and can be. */
export function sound(level: AlarmLevel | null, ms: number): void {
  const hz = level === null || level === "normal" ? 0 : PITCH_HZ[level];
  if (hz === 0 || ms - lastMs < EVERY_MS || !canSound()) return;
  lastMs = ms;
  audio ??= new AudioContext();
  beep(hz, 0);
  if (level === "critical") beep(hz, 0.35);
}
