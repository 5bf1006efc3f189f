//! Tests each function against a naive one that looks at all samples from the first, and tests errors.

use super::*;

/// Samples of the model: time and value.
type Samples = Vec<(i64, f64)>;

fn naive(function: &str, samples: &Samples, span_ns: i64) -> Option<f64> {
    let (last, value) = *samples.last()?;
    let window: Vec<f64> = samples.iter().filter(|(time, _)| *time > last - span_ns).map(|(_, value)| *value).collect();
    match function {
        "moving_average" => {
            let mut sum = 0.0;
            for value in &window {
                sum += value;
            }
            Some(sum / window.len() as f64)
        }
        "moving_min" => window.into_iter().reduce(f64::min),
        "moving_max" => window.into_iter().reduce(f64::max),
        "delta" => samples.iter().rev().nth(1).map(|(_, before)| value - before),
        "rate" => {
            let mut rate = None;
            for pair in samples.windows(2).filter(|pair| pair[1].0 > pair[0].0) {
                rate = Some((pair[1].1 - pair[0].1) / ((pair[1].0 - pair[0].0) as f64 / 1e9));
            }
            rate
        }
        "hysteresis" => {
            let mut on = false;
            for (_, value) in samples {
                on = *value >= 2.0 || on && *value > -1.0;
            }
            Some(f64::from(u8::from(on)))
        }
        _ => unreachable!("{function}"),
    }
}

fn moments(random: &mut fastrand::Rng, count: usize) -> Vec<Moment> {
    let mut time = 0;
    let mut all = Vec::new();
    for _ in 0..count {
        time += random.i64(0..3) * random.i64(1..400_000_000);
        let mut cells = Vec::new();
        for channel in 0..2 {
            if random.u8(0..3) > 0 {
                let value = if random.u8(0..20) == 0 { f64::NAN } else { (random.f64() - 0.5) * 8.0 };
                cells.push((channel, Cell::F64(value)));
            }
        }
        all.push(Moment { time, is_trigger: random.bool(), cells });
    }
    all
}

fn bits(outcomes: &[Outcome]) -> Vec<Option<u64>> {
    let bits = |cell: &Cell| match cell {
        Cell::F64(value) => value.to_bits(),
        Cell::Bool(value) => f64::from(u8::from(*value)).to_bits(),
        Cell::I64(value) => *value as u64,
        other => unreachable!("{other:?}"),
    };
    outcomes.iter().map(|outcome| outcome.as_ref().map(bits)).collect()
}

fn program(text: &str) -> Program {
    let expression = Expression::parse(text).expect(text);
    expression.compile(&vec![Kind::F64; expression.channels().len()]).expect(text)
}

#[test]
fn functions_say_what_a_look_at_all_samples_says() {
    let forms = [
        ("moving_average", ", '500ms'"),
        ("moving_min", ", '500ms'"),
        ("moving_max", ", '0.5 s'"),
        ("delta", ""),
        ("rate", ""),
        ("hysteresis", ", -1, 2.0"),
    ];
    for (function, constants) in forms {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let all = moments(&mut random, 300);
            let mut program = program(&format!("{function}(\"t.a\" + 0{constants})"));
            let mut found = Vec::new();
            // However the moments are split into calls.
            let mut rest = all.as_slice();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(random.usize(1..=rest.len().min(40)));
                // Only the first channel is part of the expression.
                let now: Vec<Moment> = now
                    .iter()
                    .cloned()
                    .map(|mut moment| {
                        moment.cells.retain(|(channel, _)| *channel == 0);
                        moment
                    })
                    .collect();
                assert_eq!(program.evaluate(&now, &mut found), Troubles::default());
                // A program that resumes from another's state gives the same results.
                if random.bool() {
                    let memory = program.memory();
                    program = self::program(&format!("{function}(\"t.a\" + 0{constants})"));
                    assert!(program.resume(&memory));
                    assert!(!program.resume(&memory[1..]));
                }
                rest = later;
            }
            let (mut samples, mut expected) = (Samples::new(), Vec::new());
            for moment in &all {
                let value = moment.cells.iter().find(|(channel, _)| *channel == 0);
                if let Some((_, Cell::F64(value))) = value
                    && !value.is_nan()
                {
                    samples.push((moment.time, value + 0.0));
                }
                if moment.is_trigger {
                    expected.push(naive(function, &samples, 500_000_000).map(f64::to_bits));
                }
            }
            assert_eq!(bits(&found), expected, "{function}, seed {seed}");
        }
    }
}

#[test]
fn scalars_take_the_newest_value_of_each_channel() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let all = moments(&mut random, 400);
        let mut program = program("CASE WHEN \"t.a{n=1}\" > 0 THEN \"t.a{n=1}\" * 2 - \"u.b\" ELSE abs(\"u.b\") END");
        let mut found = Vec::new();
        for piece in all.chunks(7) {
            program.evaluate(piece, &mut found);
        }
        let (mut newest, mut expected) = ([None, None], Vec::new());
        for moment in &all {
            for (channel, cell) in &moment.cells {
                if let Cell::F64(value) = cell {
                    newest[*channel] = Some(*value);
                }
            }
            if moment.is_trigger {
                expected.push(match newest {
                    // In SQL, NaN is greater than all numbers.
                    [Some(a), b] if a > 0.0 || a.is_nan() => b.map(|b| a * 2.0 - b),
                    [_, b] => b.map(f64::abs),
                });
            }
        }
        let same = |a: &Outcome, b: &Option<f64>| match (a, b) {
            (Some(Cell::F64(a)), Some(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            (None, None) => true,
            _ => false,
        };
        assert!(found.len() == expected.len() && found.iter().zip(&expected).all(|(a, b)| same(a, b)), "seed {seed}");
    }
}

#[test]
fn an_integral_keeps_what_rounding_takes() {
    let mut program = program("integral(\"t.a\")");
    let mut found = Vec::new();
    let second = 1_000_000_000;
    let at =
        |time: i64, value: f64| Moment { time: time * second, is_trigger: true, cells: vec![(0, Cell::F64(value))] };
    let all = [at(0, 0.0), at(1, 2e16), at(2, -2e16 + 2.0), at(3, 1.0), at(5, 1.0)];
    program.evaluate(&all, &mut found);
    // 0, 1e16, +1, −1e16 + 1.5 (rounded), +2
    let sums: Vec<f64> =
        found.iter().map(|cell| if let Some(Cell::F64(sum)) = cell { *sum } else { f64::NAN }).collect();
    assert_eq!((sums[0], sums[1]), (0.0, 1e16));
    assert!((sums[4] - sums[3] - 2.0).abs() < 1e-9 && sums[4].abs() < 10.0, "{sums:?}");
}

#[test]
fn a_value_that_is_too_old_is_none() {
    let expression = Expression::parse("coalesce(asof(\"t.s\", '10ms'), 'old')").unwrap();
    let mut program = expression.compile(&[Kind::Text]).unwrap();
    assert_eq!(program.kind(), Kind::Text);
    let mut found = Vec::new();
    let at = |ms: i64, cells: Vec<(usize, Cell)>| Moment { time: ms * 1_000_000, is_trigger: true, cells };
    program
        .evaluate(&[at(0, vec![]), at(1, vec![(0, Cell::text("OPEN"))]), at(11, vec![]), at(12, vec![])], &mut found);
    let texts: Vec<&str> = found.iter().map(|c| if let Some(Cell::Text(text)) = c { &**text } else { "" }).collect();
    assert_eq!(texts, ["old", "OPEN", "OPEN", "old"]);
}

#[test]
fn a_divisor_of_zero_gives_no_value_and_is_counted() {
    for kind in [Kind::F64, Kind::I64, Kind::U64] {
        let expression = Expression::parse("10 / \"t.a\" + 7 % \"t.a\"").unwrap();
        let mut program = expression.compile(&[kind]).unwrap();
        let cell = |value: u8| match kind {
            Kind::F64 => Cell::F64(if value == 0 { -0.0 } else { f64::from(value) }),
            Kind::I64 => Cell::I64(value.into()),
            _ => Cell::U64(value.into()),
        };
        let moments = [0, 2, 0].map(|value| Moment { time: 0, is_trigger: true, cells: vec![(0, cell(value))] });
        let mut found = Vec::new();
        let troubles = program.evaluate(&moments, &mut found);
        assert_eq!((troubles.zero_divisors, troubles.failed), (4, 0), "{kind:?}");
        assert!(found[0].is_none() && found[1].is_some() && found[2].is_none(), "{kind:?}: {found:?}");
    }
}

#[test]
fn a_constant_divisor_of_zero_is_counted_for_each_frame() {
    for (text, zeros, has_value) in [
        ("\"t.a\" / 0", 3, false),
        ("\"t.a\" / (-0.0)", 3, false),
        ("\"t.a\" % (2 - 2)", 3, false),
        ("\"t.a\" / -2.5", 0, true),
        ("\"t.a\" / (3 - 1)", 0, true),
    ] {
        let mut program = Expression::parse(text).unwrap().compile(&[Kind::F64]).unwrap();
        let moments = [1.0, 2.0, 3.0];
        let moments = moments.map(|value| Moment { time: 0, is_trigger: true, cells: vec![(0, Cell::F64(value))] });
        let mut found = Vec::new();
        let troubles = program.evaluate(&moments, &mut found);
        assert_eq!((troubles.zero_divisors, troubles.failed), (zeros, 0), "{text}");
        assert!(found.iter().all(|value| value.is_some() == has_value), "{text}: {found:?}");
    }
}

#[test]
fn operators_bind_as_in_sql() {
    for (text, expected) in [
        ("\"t.a\" is distinct from 1 or true", Cell::Bool(true)),
        ("\"t.a\" is not distinct from 1 and false", Cell::Bool(false)),
        ("true or \"t.a\" is distinct from 1 and false", Cell::Bool(true)),
        ("-\"t.a\" * 2", Cell::F64(-2.0)),
        ("2 - -\"t.a\"", Cell::F64(3.0)),
    ] {
        let mut program = Expression::parse(text).unwrap().compile(&[Kind::F64]).unwrap();
        let mut found = Vec::new();
        program.evaluate(&[Moment { time: 0, is_trigger: true, cells: vec![(0, Cell::F64(1.0))] }], &mut found);
        assert_eq!(found, [Some(expected)], "{text}");
    }
}

#[test]
fn one_row_that_fails_is_counted_and_the_others_have_their_values() {
    let expression = Expression::parse("CAST(\"t.s\" AS BIGINT) + 1").unwrap();
    let mut program = expression.compile(&[Kind::Text]).unwrap();
    let at = |text: &str| Moment { time: 0, is_trigger: true, cells: vec![(0, Cell::text(text))] };
    let mut found = Vec::new();
    let troubles = program.evaluate(&[at("1"), at("x"), at("3")], &mut found);
    assert_eq!(found, [Some(Cell::I64(2)), None, Some(Cell::I64(4))]);
    assert_eq!(troubles.failed, 1);
    assert!(troubles.why.is_some_and(|why| why.contains('x')));
}

#[test]
fn a_window_has_room_for_so_many_samples() {
    let mut program = program("moving_min(\"t.a\", '1h') + moving_max(\"t.a\", '1h')");
    let share = WINDOW_SAMPLES_MAX / 2;
    let at = |n: usize| Moment { time: n as i64, is_trigger: n > share, cells: vec![(0, Cell::F64(n as f64))] };
    let mut found = Vec::new();
    let troubles = program.evaluate(&(0..share + 2).map(at).collect::<Vec<_>>(), &mut found);
    assert_eq!(troubles.left_out, 4);
    assert_eq!(found, [Some(Cell::F64((share + 1) as f64 + 2.0))]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let parse = |text: &str| Expression::parse(text).unwrap_err();
    let compiled = |text: &str, kind: Kind| {
        let expression = Expression::parse(text).expect(text);
        expression.compile(&vec![kind; expression.channels().len()]).unwrap_err()
    };
    for (text, fault, position, says) in [
        ("\"t.a\" +", Fault::Syntax, None, "found: EOF"),
        ("\"t.a\" \"t.b\"", Fault::Syntax, Some(7), "not expected here"),
        ("1 + t.a", Fault::Channel, Some(5), "double quotes"),
        ("1 + 2", Fault::Channel, None, "needs a channel"),
        ("2 * rate()", Fault::Function, Some(5), "rate(x)"),
        ("moving_min(\"t.a\", '2h')", Fault::Function, Some(1), "up to an hour"),
        ("moving_min(\"t.a\", 1)", Fault::Function, Some(1), "a span"),
        ("hysteresis(\"t.a\", 2, 1)", Fault::Function, Some(1), "low and high"),
        ("asof(\"t.a\" + 1, '1s')", Fault::Function, Some(1), "takes a channel"),
        ("rate(\"t.a\") OVER ()", Fault::Function, Some(1), "OVER"),
        ("rate(1)", Fault::Function, Some(1), "over channels"),
        ("(SELECT 1) + \"t.a\"", Fault::Function, None, "no queries"),
    ] {
        let error = parse(text);
        assert_eq!((error.fault, error.position), (fault, position), "{text}: {error}");
        assert!(error.message.contains(says), "{text}: {error}");
    }
    assert_eq!(parse(&format!("\"t.a\"{}", " + 1".repeat(1500))).fault, Fault::Size);
    assert_eq!(parse(&format!("\"t.a\"{}", " + 1".repeat(300))).fault, Fault::Size);
    assert_eq!(parse(&format!("{}\"t.a\"{}", "(".repeat(200), ")".repeat(200))).fault, Fault::Size);
    let many: Vec<String> = (0..70).map(|n| format!("\"t.c{n}\"")).collect();
    assert_eq!(parse(&many.join(" + ")).fault, Fault::Size);
    assert_eq!(parse(&["rate(\"t.a\")"; 17].join(" + ")).fault, Fault::Size);
    for (text, kind, says) in [
        ("rate(\"t.a\")", Kind::Text, "not text"),
        ("nosuch(\"t.a\")", Kind::F64, "nosuch"),
        ("now() > \"t.a\"", Kind::F64, "not the same each time"),
        ("random() + \"t.a\"", Kind::F64, "not the same each time"),
        ("sum(\"t.a\")", Kind::F64, "moving_average"),
        ("make_array(\"t.a\")", Kind::F64, "numbers, truth values or text"),
        ("\"t.a\" AND true", Kind::F64, ""),
    ] {
        let error = compiled(text, kind);
        assert!(error.message.contains(says), "{text}: {error}");
    }
    // Functions can be checked without the types of channels; types cannot.
    let checked = |text: &str| Expression::parse(text).expect(text).check();
    for (text, says) in [
        ("foo(\"t.a\") + 1", "there is no function foo()"),
        ("sum(\"t.a\") + now()", "moving_average"),
        ("avg(\"t.a\")", "moving_average"),
        ("now() > \"t.a\"", "not the same each time"),
        ("upper(\"t.a\") || foo(\"t.b\")", "there is no function foo()"),
        ("2 * rate(foo(\"t.a\"))", "column 5: there is no function foo()"),
    ] {
        let error = checked(text).expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    for text in ["upper(\"t.a\")", "\"t.a\" AND true", "-\"t.a\" / 2", "rate(\"t.a\")", "asof(\"t.a\", '1s') || 'x'"] {
        assert_eq!(checked(text), Ok(()), "{text}");
    }
    // The deepest expression allowed is evaluated on a thread of ordinary stack size.
    let deep = format!("\"t.a\"{}", " + 1".repeat(250));
    let mut program = program(&deep);
    let mut found = Vec::new();
    program.evaluate(&[Moment { time: 0, is_trigger: true, cells: vec![(0, Cell::F64(1.0))] }], &mut found);
    assert_eq!(found, [Some(Cell::F64(251.0))]);
}

#[test]
fn integers_out_of_range_fail_and_do_not_wrap() {
    let max = Cell::I64(i64::MAX);
    for (text, kind, cell, why) in [
        ("\"a\" + 1", Kind::I64, max.clone(), "bigint out of range"),
        ("\"a\" * 4", Kind::I64, Cell::I64(1 << 62), "bigint out of range"),
        ("1 - \"a\" - 3", Kind::I64, max.clone(), "bigint out of range"),
        ("-(\"a\")", Kind::I64, Cell::I64(i64::MIN), "bigint out of range"),
        ("asof(\"a\", '1s') + 1", Kind::I64, max.clone(), "bigint out of range"),
        ("moving_max(\"a\" + 1, '1s')", Kind::I64, max, "bigint out of range"),
    ] {
        let mut program = Expression::parse(text).expect(text).compile(&[kind]).expect(text);
        let moment = |time, cell| Moment { time, is_trigger: true, cells: vec![(0, cell)] };
        let mut outcomes = Vec::new();
        let troubles = program.evaluate(&[moment(1, Cell::I64(-1)), moment(2, cell)], &mut outcomes);
        assert_eq!(troubles.why.as_deref(), Some(why), "{text}: {outcomes:?}");
        assert!(troubles.failed == 1 && outcomes[0].is_some(), "{text}: {outcomes:?}");
        assert!(outcomes[1].is_none() || text.starts_with("moving"), "{text}: {outcomes:?}");
    }
}

#[test]
fn what_one_row_may_cost_is_bounded() {
    // None of these may be evaluated: each would take minutes, or gibibytes.
    for text in [
        "levenshtein(repeat('a', 200000), repeat('b', 200000)) + length(\"a\")",
        "levenshtein(repeat(\"a\", 200000), repeat('b', 200000))",
        "length(repeat(\"a\", 2147483647))",
        "length(lpad(\"a\", 2147483647))",
        "length(replace(repeat(\"a\", 60000), 'x', repeat('y', 60000)))",
    ] {
        let mut program = Expression::parse(text).expect(text).compile(&[Kind::Text]).expect(text);
        let moments: Vec<Moment> = (0..3)
            .map(|time| Moment { time, is_trigger: true, cells: vec![(0, Cell::text(&"x".repeat(time as usize)))] })
            .collect();
        let mut outcomes = Vec::new();
        let troubles = program.evaluate(&moments[2..], &mut outcomes);
        assert_eq!((outcomes.as_slice(), troubles.failed), ([None].as_slice(), 1), "{text}");
        assert!(troubles.why.as_deref().is_some_and(|why| why.contains(" at a time, at most 131072")), "{troubles:?}");
    }
    // Texts as long as channels have them are no problem.
    let expression = Expression::parse("levenshtein(\"a\", \"b\") + length(upper(\"a\" || \"b\"))").unwrap();
    let mut program = expression.compile(&[Kind::Text, Kind::Text]).unwrap();
    let cells = vec![(0, Cell::text(&"x".repeat(1024))), (1, Cell::text(&"y".repeat(1024)))];
    let mut outcomes = Vec::new();
    let troubles = program.evaluate(&[Moment { time: 1, is_trigger: true, cells }], &mut outcomes);
    assert_eq!((outcomes, troubles.why), (vec![Some(Cell::I64(3 * 1024))], None));
}

#[test]
fn a_sign_may_follow_an_operator_without_a_blank() {
    let mut program = program("CASE WHEN \"a\">-5 AND \"a\"*-1<=+3 THEN 1.0 ELSE 0.0 END");
    let moment = |value| Moment { time: 1, is_trigger: true, cells: vec![(0, Cell::F64(value))] };
    let mut outcomes = Vec::new();
    program.evaluate(&[moment(-3.0), moment(-4.0), moment(-6.0)], &mut outcomes);
    assert_eq!(outcomes, [1.0, 0.0, 0.0].map(|value| Some(Cell::F64(value))));
}

#[test]
fn nan_is_larger_than_every_number_and_casts_round() {
    let value = |text: &str, a: f64| {
        let moment = Moment { time: 1, is_trigger: true, cells: vec![(0, Cell::F64(a))] };
        let mut found = Vec::new();
        assert_eq!(program(text).evaluate(&[moment], &mut found), Troubles::default(), "{text}");
        found.remove(0).unwrap()
    };
    for nan in [f64::NAN, -f64::NAN] {
        for text in ["\"t.a\" > 1e300", "-\"t.a\" > 1e300", "abs(\"t.a\" - 1) > 1e300", "\"t.a\" = \"t.a\" * 2"] {
            assert_eq!(value(text, nan), Cell::Bool(true), "{text}");
        }
    }
    assert_eq!(value("\"t.a\" - \"t.a\" > 1e300", f64::INFINITY), Cell::Bool(true));
    for (number, whole) in [(2.7, 3), (2.5, 2), (3.5, 4), (-0.5, 0), (-2.7, -3)] {
        assert_eq!(value("cast(\"t.a\" as bigint)", number), Cell::I64(whole), "{number}");
    }
    for zero in [0.0, -0.0] {
        assert_eq!(value("\"t.a\" in (0, 2, 3, 4, 5)", zero), Cell::Bool(true));
        assert_eq!(value("case \"t.a\" when 0.0 then 1 when 2.0 then 2 end", zero), Cell::I64(1));
    }
    let moment = Moment { time: 1, is_trigger: true, cells: vec![(0, Cell::F64(1e300))] };
    let troubles = program("cast(\"t.a\" as bigint)").evaluate(&[moment], &mut Vec::new());
    assert_eq!((troubles.failed, troubles.why.as_deref()), (1, Some("bigint out of range")));
}
