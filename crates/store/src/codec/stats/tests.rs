use super::*;

fn times_of(times: &[i64], gaps: &[u32]) -> Times {
    let mut prepared = Times::default();
    prepared.set(times, times.is_sorted(), gaps);
    prepared
}

fn column(values: Vec<f64>, states: Option<Vec<CellState>>) -> Column {
    Column { values: ColumnValues::F64(values), states }
}

fn of(values: &[f64], times: &[i64], gaps: &[u32], interpolation: Interpolation) -> ColumnStatistics {
    ColumnStatistics::of(&column(values.to_vec(), None), interpolation, &times_of(times, gaps))
}

#[test]
fn integrals_follow_the_interpolation_and_stop_at_gaps() {
    let (values, times) = ([1.0, 3.0, 5.0, 5.0], [0, 10, 20, 40]);
    let linear = of(&values, &times, &[], Interpolation::Linear);
    assert_eq!(linear.integral, Some(Integral { value_ns: 20.0 + 40.0 + 100.0, known_ns: 40 }));
    let hold = of(&values, &times, &[], Interpolation::Hold);
    assert_eq!(hold.integral, Some(Integral { value_ns: 10.0 + 30.0 + 100.0, known_ns: 40 }));
    let gap = of(&values, &times, &[2], Interpolation::Linear);
    assert_eq!(gap.integral, Some(Integral { value_ns: 20.0 + 100.0, known_ns: 30 }));
    assert_eq!(of(&[1.0, 2.0], &[5, 4], &[], Interpolation::Hold).integral, None);
}

#[test]
fn what_is_no_number_enters_nothing_but_its_count() {
    let values = [f64::NAN, 2.0, f64::INFINITY, 4.0, 6.0, f64::NAN];
    let got = of(&values, &[0, 1, 2, 3, 4, 5], &[], Interpolation::Linear);
    assert_eq!((got.nans, got.infinities, got.sum), (2, 1, Some(Sum::Float(12.0))));
    assert_eq!(got.min.map(|s| (s.value, s.time)), Some((Value::F64(2.0), 1)));
    assert_eq!(got.max.map(|s| (s.value, s.time)), Some((Value::F64(f64::INFINITY), 2)));
    assert_eq!(got.integral, Some(Integral { value_ns: 5.0, known_ns: 1 }));
    assert_eq!(got.mean(), Some(4.0));
}

#[test]
fn absent_cells_are_bridged_and_unknown_ones_are_not() {
    use CellState::{Absent, Unknown, Value as V};
    let times = times_of(&[0, 10, 20, 30], &[]);
    let with = |middle| {
        let states = Some(vec![V, middle, V, V]);
        ColumnStatistics::of(&column(vec![1.0, 99.0, 3.0, 3.0], states), Interpolation::Linear, &times)
    };
    assert_eq!(with(Absent).integral, Some(Integral { value_ns: 40.0 + 30.0, known_ns: 30 }));
    assert_eq!(with(Unknown).integral, Some(Integral { value_ns: 30.0, known_ns: 10 }));
    assert_eq!((with(Absent).absent, with(Unknown).unknowns, with(Absent).nulls()), (1, 1, 1));
}

#[test]
fn joining_equals_computing_over_all() {
    let mut random = fastrand::Rng::with_seed(11);
    let values: Vec<f64> = (0..200).map(|_| (random.f64() * 100.0).round()).collect();
    let times: Vec<i64> = (0..200).map(|i| i * 1_000 + random.i64(0..900)).collect();
    for interpolation in [Interpolation::Hold, Interpolation::Linear] {
        let whole = of(&values, &times, &[], interpolation);
        let mut joined = of(&values[..80], &times[..80], &[], interpolation);
        joined.join(&of(&values[80..], &times[80..], &[], interpolation), interpolation, false);
        let (a, b) = (whole.integral.unwrap(), joined.integral.unwrap());
        assert_eq!(a.known_ns, b.known_ns);
        assert!((a.value_ns - b.value_ns).abs() < 1e-6 * a.value_ns.abs());
        assert_eq!(
            (whole.min, whole.max, whole.first, whole.last),
            (joined.min, joined.max, joined.first, joined.last)
        );
        assert_eq!(whole.sum, joined.sum);
    }
}

#[test]
fn sums_are_compensated_and_integers_exact() {
    let got = of(&[1e16, 1.0, 1.0, -1e16, 1.0], &[0, 1, 2, 3, 4], &[], Interpolation::Hold);
    assert_eq!(got.sum, Some(Sum::Float(3.0)));
    let column = Column { values: ColumnValues::U64(vec![u64::MAX; 4]), states: None };
    let got = ColumnStatistics::of(&column, Interpolation::Hold, &times_of(&[0, 1, 2, 3], &[]));
    assert_eq!(got.sum, Some(Sum::Integer(4 * i128::from(u64::MAX))));
}

#[test]
fn they_come_back_from_bytes() {
    let mut random = fastrand::Rng::with_seed(4);
    let times: Vec<i64> = (0..100).map(|i| i64::MIN / 2 + i * 7).collect();
    let prepared = times_of(&times, &[50]);
    let states = (0..100).map(|_| CellState::from_code(random.u8(0..4)).unwrap()).collect::<Vec<_>>();
    let columns = [
        column((0..100).map(|i| if i == 3 { f64::NAN } else { i as f64 }).collect(), None),
        column((0..100).map(|i| i as f64).collect(), Some(states)),
        column(vec![0.0; 100], Some(vec![CellState::Absent; 100])),
        Column { values: ColumnValues::I64(vec![i64::MIN; 100]), states: None },
        Column { values: ColumnValues::U64(vec![u64::MAX; 100]), states: None },
        Column { values: ColumnValues::Bool(vec![true; 100]), states: None },
        Column { values: ColumnValues::String { offsets: vec![0; 101], bytes: vec![] }, states: None },
    ];
    for column in columns {
        let statistics = ColumnStatistics::of(&column, Interpolation::Linear, &prepared);
        let mut out = Vec::new();
        statistics.put(&prepared, &mut out);
        let mut cursor = Cursor::new(&out);
        let kind = column.values.channel_type();
        let got = ColumnStatistics::read(&mut cursor, kind, 100, (prepared.min, prepared.max)).unwrap();
        assert_eq!(format!("{got:?}"), format!("{statistics:?}"));
        assert_eq!(cursor.remaining(), 0);
    }
}
