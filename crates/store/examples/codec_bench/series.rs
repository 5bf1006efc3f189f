//! Series as instruments deliver them: quantised, noisy, correlated, never random numbers.

use strongback_store::ColumnValues;

/// A generator of one kind of channel.
pub(crate) struct Series {
    /// What it is.
    pub name: &'static str,
    /// Values `rows` long, another instance of the same kind for each seed.
    pub values: fn(seed: u64, rows: usize) -> ColumnValues,
}

/// Normal noise of unit variance.
struct Noise(fastrand::Rng);

impl Noise {
    fn new(seed: u64) -> Self {
        Noise(fastrand::Rng::with_seed(seed * 2_654_435_761 + 17))
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.0.f64()).sum::<f64>() - 6.0
    }
}

/// A slow process, mains hum and sensor noise, in converter codes.
fn codes(seed: u64, rows: usize, full_scale: f64, noise_lsb: f64) -> Vec<f64> {
    let mut noise = Noise::new(seed);
    let (mut level, mut drift) = (0.3 + 0.4 * noise.0.f64(), 0.0);
    (0..rows)
        .map(|i| {
            drift = 0.999 * drift + noise.normal() * 2e-6;
            level = (level + drift).clamp(0.05, 0.95);
            let hum = 2.0 * (i as f64 * 2.0 * std::f64::consts::PI * 50.0 / 1_000.0).sin();
            (level * full_scale + hum + noise.normal() * noise_lsb).round().clamp(0.0, full_scale)
        })
        .collect()
}

fn f32s(values: impl IntoIterator<Item = f64>) -> ColumnValues {
    ColumnValues::F32(values.into_iter().map(|v| v as f32).collect())
}

fn dwell<T>(seed: u64, rows: usize, mean: usize, mut next: impl FnMut(&mut fastrand::Rng) -> T) -> Vec<T>
where
    T: Copy,
{
    let mut random = fastrand::Rng::with_seed(seed + 1);
    let mut state = next(&mut random);
    (0..rows)
        .map(|_| {
            if random.usize(..mean) == 0 {
                state = next(&mut random);
            }
            state
        })
        .collect()
}

/// Every kind.
pub(crate) const ALL: &[Series] = &[
    Series {
        name: "ADC 12 bit, bar, f32",
        values: |seed, rows| f32s(codes(seed, rows, 4_095.0, 1.5).into_iter().map(|c| c * 250.0 / 4_095.0)),
    },
    Series {
        name: "ADC 12 bit, offset in f32",
        values: |seed, rows| {
            let v = codes(seed, rows, 4_095.0, 1.5).into_iter();
            ColumnValues::F32(v.map(|c| c as f32 * 0.061_05 - 10.0).collect())
        },
    },
    Series {
        name: "strain 16 bit, f64",
        values: |seed, rows| {
            let v = codes(seed, rows, 65_535.0, 6.0).into_iter();
            ColumnValues::F64(v.map(|c| -1_250.0 + 0.038_147 * c).collect())
        },
    },
    Series {
        name: "thermocouple 0.1 °C, f64",
        values: |seed, rows| {
            let v = codes(seed, rows, 12_000.0, 0.7).into_iter();
            ColumnValues::F64(v.map(|c| c / 10.0).collect())
        },
    },
    Series {
        name: "thermocouple 1/16 °C, f32",
        values: |seed, rows| f32s(codes(seed, rows, 16_384.0, 0.7).into_iter().map(|c| c / 16.0)),
    },
    Series {
        name: "set-point with ramps, f64",
        values: |seed, rows| {
            let mut random = fastrand::Rng::with_seed(seed + 3);
            let (mut value, mut target) = (20.0f64, 20.0f64);
            let v = (0..rows).map(|_| {
                if random.usize(..700) == 0 {
                    target = random.i32(0..200) as f64 / 2.0;
                }
                value += (target - value).clamp(-0.1, 0.1);
                (value * 10.0).round() / 10.0
            });
            ColumnValues::F64(v.collect())
        },
    },
    Series {
        name: "GNSS latitude 1e-7°, f64",
        values: |seed, rows| {
            let mut noise = Noise::new(seed);
            let mut speed = 0.0;
            let mut at = 48.1 + noise.0.f64();
            let v = (0..rows).map(|_| {
                speed = 0.99 * speed + noise.normal() * 3e-7;
                at += speed;
                (at * 1e7).round() / 1e7
            });
            ColumnValues::F64(v.collect())
        },
    },
    Series {
        name: "GNSS latitude, full f64",
        values: |seed, rows| {
            let mut noise = Noise::new(seed);
            let mut speed = 0.0;
            let mut at = 48.1 + noise.0.f64();
            let v = (0..rows).map(|_| {
                speed = 0.99 * speed + noise.normal() * 3e-7;
                at += speed;
                at
            });
            ColumnValues::F64(v.collect())
        },
    },
    Series {
        name: "IMU rate, quantised f32",
        values: |seed, rows| {
            let mut noise = Noise::new(seed);
            let mut rate = 0.0;
            f32s((0..rows).map(move |_| {
                rate = 0.98 * rate + noise.normal() * 8.0;
                f64::from((rate + noise.normal() * 12.0).round() as f32 * 0.001_064_225_1f32)
            }))
        },
    },
    Series {
        name: "IMU rate, filtered f32",
        values: |seed, rows| {
            let mut noise = Noise::new(seed);
            let (mut rate, mut filtered) = (0.0, 0f32);
            f32s((0..rows).map(move |_| {
                rate = 0.98 * rate + noise.normal() * 8.0;
                let raw = (rate + noise.normal() * 12.0).round() as f32 * 0.001_064_225_1;
                filtered += 0.2 * (raw - filtered);
                f64::from(filtered)
            }))
        },
    },
    Series {
        name: "digital state, bool",
        values: |seed, rows| ColumnValues::Bool(dwell(seed, rows, 500, |r| r.bool())),
    },
    Series {
        name: "enumeration of 7, u8",
        values: |seed, rows| ColumnValues::U8(dwell(seed, rows, 300, |r| r.u8(0..7))),
    },
    Series {
        name: "enumeration, text",
        values: |seed, rows| {
            let names = ["IDLE", "CHILL", "FILL", "HOLD", "PRESS", "TERMINAL", "ABORT"];
            let (mut offsets, mut bytes) = (vec![0], Vec::new());
            for state in dwell(seed, rows, 300, |r| r.usize(..names.len())) {
                bytes.extend_from_slice(names[state].as_bytes());
                offsets.push(bytes.len() as u32);
            }
            ColumnValues::String { offsets, bytes }
        },
    },
    Series {
        name: "frame counter, u32",
        values: |seed, rows| ColumnValues::U32((0..rows as u32).map(|i| seed as u32 * 1_000 + i).collect()),
    },
    Series {
        name: "byte counter, u64",
        values: |seed, rows| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut total = 1u64 << 40;
            ColumnValues::U64(
                (0..rows)
                    .map(|_| {
                        total += 64 * random.u64(10..30);
                        total
                    })
                    .collect(),
            )
        },
    },
    Series {
        name: "raw 16 bit codes, u16",
        values: |seed, rows| {
            ColumnValues::U16(codes(seed, rows, 65_535.0, 6.0).into_iter().map(|c| c as u16).collect())
        },
    },
    Series {
        name: "noise, full f64",
        values: |seed, rows| {
            let mut noise = Noise::new(seed);
            ColumnValues::F64((0..rows).map(|_| noise.normal()).collect())
        },
    },
];

/// A kind of time stamps: name and the stamps.
pub(crate) type Stamps = (&'static str, fn(rows: usize) -> Vec<i64>);

const START: i64 = 1_763_600_000_000_000_000;

/// Kinds of time stamps.
pub(crate) const STAMPS: &[Stamps] = &[
    ("1 kHz exact", |rows| (0..rows as i64).map(|i| START + i * 1_000_000).collect()),
    ("1 kHz ± 50 µs, ns", |rows| {
        let mut random = fastrand::Rng::with_seed(1);
        (0..rows as i64).map(|i| START + i * 1_000_000 + random.i64(-50_000..50_000)).collect()
    }),
    ("1 kHz ± 50 µs, counted in µs", |rows| {
        let mut random = fastrand::Rng::with_seed(2);
        (0..rows as i64).map(|i| START + i * 1_000_000 + random.i64(-50..50) * 1_000).collect()
    }),
    ("40 ms ± 5 ms", |rows| {
        let mut random = fastrand::Rng::with_seed(3);
        (0..rows as i64).map(|i| START + i * 40_000_000 + random.i64(-5_000_000..5_000_000)).collect()
    }),
    ("repeated, 20 a packet", |rows| {
        let mut random = fastrand::Rng::with_seed(4);
        let stamps: Vec<i64> =
            (0..rows as i64 / 20 + 1).map(|i| START + i * 20_000_000 + random.i64(0..80_000)).collect();
        (0..rows).map(|i| stamps[i / 20]).collect()
    }),
    ("50 Hz, a late packet now and then", |rows| {
        let mut random = fastrand::Rng::with_seed(5);
        (0..rows as i64)
            .map(|i| {
                let late = if random.usize(..200) == 0 { random.i64(0..15_000_000) } else { 0 };
                START + i * 20_000_000 + random.i64(0..30_000) + late
            })
            .collect()
    }),
];
