//! Hostile SQL generated from a seed: deep, wide, large, or all of it at random.

use fastrand::Rng;

/// Max bytes of a statement: the server accepts 1 MiB.
const BYTES_MAX: usize = 3 << 20;
/// Max number of parts of a statement.
const PARTS_MAX: f64 = 200_000.0;

/// Chains that parsers nest to the left: the first part, and the repeated one.
const CHAINS: [(&str, &str); 22] = [
    ("select 1", "+1"),
    ("select x", "*x"),
    ("select 1", "-1.5"),
    ("select * from m where x=1", " or x=2"),
    ("select * from m where x=1", " and y<2"),
    ("select 'a'", "||'a'"),
    ("select x from m where s like 'a'", " or s like '%a%'"),
    ("select 1", "::int"),
    ("select null", " is null"),
    ("select time", " at time zone 'UTC'"),
    ("select s", "->'a'"),
    ("select array[1]", "[1]"),
    ("select x", " between 1 and 2"),
    ("select x", " collate \"C\""),
    ("select 1", " union all select 1"),
    ("select x from m", " union select x from m"),
    ("select x from m", " except select x from m"),
    ("select 1 from m", " join m using (x)"),
    ("select 1 from m a", ", m"),
    ("select 1 from m", " cross join m"),
    ("select 1", "=1"),
    ("select x", " in (1)"),
];

/// Nested constructs: opening, inside, closing.
const NESTS: [(&str, &str, &str); 22] = [
    ("(", "1", ")"),
    ("((", "1", "))"),
    ("array[", "1", "]"),
    ("row(", "1", ")"),
    ("[", "1", "]"),
    ("{", "1", "}"),
    ("-", "1", ""),
    ("- -", "1", ""),
    ("not ", "true", ""),
    ("+", "x", ""),
    ("abs(", "x", ")"),
    ("coalesce(1,", "1", ")"),
    ("case when true then ", "1", " end"),
    ("case ", "1", " when 1 then 1 else 2 end"),
    ("cast(", "1", " as int)"),
    ("(select ", "1", ")"),
    ("exists (select ", "1", ")"),
    ("(with a as (select 1) select ", "1", ")"),
    ("x in (select ", "1", ")"),
    ("extract(day from ", "now()", ")"),
    ("position('a' in ", "'b'", ")"),
    ("interval ", "'1 day'", ""),
];

/// Expressions whose values are larger than their arguments; `#` stands for a number, `@` for another expression.
const LARGE: [&str; 24] = [
    "repeat('x', #)",
    "repeat(@, #)",
    "lpad(s, #, 'y')",
    "rpad(@, #, s)",
    "lpad(@, #)",
    "replace(@, 'x', repeat('y', #))",
    "replace(@, '', s)",
    "concat(@, @, @)",
    "concat_ws(@, s, @, s)",
    "@ || @",
    "translate(@, 'x', 'ÿ')",
    "regexp_replace(@, '.', repeat('z', #), 'g')",
    "array_to_string(array_repeat(@, #), @)",
    "array_repeat(@, #)",
    "array_repeat(array_repeat(x, #), #)",
    "range(0, #)",
    "generate_series(1, #)",
    "array_resize(make_array(x), #, x)",
    "make_array(@, @)",
    "array_append(array_repeat(x, #), x)",
    "overlay(@ placing @ from 1)",
    "to_hex(x)",
    "encode(@, 'hex')",
    "upper(@)",
];

/// Aggregates and windows that keep all their input; `@` stands for an expression.
const KEEPING: [&str; 14] = [
    "array_agg(@)",
    "array_agg(@) over ()",
    "array_agg(@) over (order by time)",
    "array_agg(@) over (order by time rows between 10000 preceding and current row)",
    "string_agg(@, @)",
    "string_agg(s, ',') over (order by time)",
    "array_agg(distinct @)",
    "count(distinct @)",
    "median(y) over (order by time)",
    "percentile_cont(0.5) within group (order by y)",
    "first_value(@) over (order by time)",
    "max(@) over (partition by rig)",
    "lag(@, #, @) over (order by time)",
    "nth_value(@, #) over (order by time)",
];

/// Sources of many rows; `#` stands for a number.
const SOURCES: [&str; 12] = [
    "m",
    "m a, m b",
    "m a cross join m b cross join m c",
    "m a join m b on a.x < b.x",
    "m a left join m b on a.s = b.s",
    "m a full join m b using (rig)",
    "generate_series(1, #)",
    "(select unnest(range(0, #)) x, s, y, time, rig from m) q",
    "(select x, repeat(s, #) s, y, time, rig from m) q",
    "(select x, s, y, time, rig from m union all select x, s, y, time, rig from m) q",
    "(with recursive r as (select 1 x union all select x + 1 from r where x < #) select x, 's' s, 1.0 y, now() \
     \"time\", 'A' rig from r) q",
    "information_schema.columns",
];

/// Generator of statements.
pub(super) struct Grammar<'a> {
    rng: &'a mut Rng,
}

impl<'a> Grammar<'a> {
    pub(super) fn new(rng: &'a mut Rng) -> Grammar<'a> {
        Grammar { rng }
    }

    /// Returns a statement.
    pub(super) fn statement(&mut self) -> String {
        let mut sql = match self.rng.u32(..14) {
            0 | 1 => self.chain(),
            2 | 3 => self.nest(),
            4 => self.common_tables(),
            5 => self.wide(),
            6 => self.joins(),
            7 => self.correlated(),
            8 | 9 => self.large(),
            10 => self.keeping(),
            11 => self.array(),
            12 => self.frame(),
            _ => format!("select {} from {}", self.expression(6), self.source()),
        };
        if self.rng.u32(..20) == 0 {
            sql.insert_str(0, "explain ");
        }
        sql
    }

    /// Returns a number of parts; each order of magnitude is equally likely.
    fn parts(&mut self) -> usize {
        PARTS_MAX.powf(self.rng.f64()) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(..all.len())]
    }

    fn repeated(&mut self, part: &str, more: usize) -> String {
        part.repeat(self.parts().min((BYTES_MAX - more) / part.len().max(1)))
    }

    fn chain(&mut self) -> String {
        let (first, part) = self.one_of(&CHAINS);
        let chain = self.repeated(part, first.len());
        let from = if first.contains("from") || part.contains("from") { "" } else { " from m limit 1" };
        format!("{first}{chain}{from}")
    }

    fn nest(&mut self) -> String {
        let (open, inside, close) = self.one_of(&NESTS);
        let count = self.parts().min(BYTES_MAX / (open.len() + close.len()));
        // Sometimes nothing closes: backtracking parsers then backtrack the most.
        let close = if self.rng.u32(..4) == 0 { String::new() } else { close.repeat(count) };
        match self.rng.u32(..4) {
            0 => format!("select 1 from {}m{close}", open.repeat(count)),
            _ => format!("select {}{inside}{close} from m limit 1", open.repeat(count)),
        }
    }

    fn common_tables(&mut self) -> String {
        let count = self.parts().clamp(1, 20_000);
        let body = self.one_of(&[
            "select a.x from @ a, @ b",
            "select x from @ union all select x from @",
            "select x from @",
            "select x, (select max(x) from @) from @",
            "select x from m",
        ]);
        let mut sql = String::from("with t0 as (select x from m)");
        for number in 1..=count {
            sql.push_str(&format!(", t{number} as ({})", body.replace('@', &format!("t{}", number - 1))));
            if sql.len() > BYTES_MAX {
                break;
            }
        }
        format!("{sql} select * from t{count}")
    }

    fn wide(&mut self) -> String {
        let count = self.parts();
        let part = self.one_of(&["x", "1", "s", "sum(y)", "x+y", "'a'", "null", "row_number() over (order by x)"]);
        let list = |count: usize, separator: &str| vec![part; count.min(BYTES_MAX / (part.len() + 2))].join(separator);
        match self.rng.u32(..5) {
            0 => format!("select {} from m limit 10", list(count, ",")),
            1 => format!("select * from m where x in ({})", list(count, ",")),
            2 => format!("select * from (values ({})) v", list(count, "),(")),
            3 => format!("select coalesce({}) from m", list(count, ",")),
            _ => format!("select count(*) from m group by {} order by {}", list(count, ","), list(count, ",")),
        }
    }

    fn joins(&mut self) -> String {
        let count = self.parts().min(20_000);
        let (open, close) = if self.rng.bool() { ("(", ")") } else { ("", "") };
        let mut sql = format!("select count(*) from {}m t0", open.repeat(count));
        for number in 1..=count {
            sql.push_str(&format!(" join m t{number} on t{number}.x = t0.x{close}"));
        }
        sql
    }

    fn correlated(&mut self) -> String {
        let depth = self.rng.usize(1..12);
        let mut inner = String::from("1");
        for level in (0..depth).rev() {
            let outer = level.saturating_sub(1);
            inner = format!("(select max(t{level}.y + {inner}) from m t{level} where t{level}.x <= t{outer}.x)");
        }
        format!("select x, {inner} from m t0 limit 10")
    }

    fn large(&mut self) -> String {
        let (value, source) = (self.value(3), self.source());
        match self.rng.u32(..3) {
            0 => format!("select {value}"),
            1 => format!("select {value} from {source}"),
            _ => format!("select length({value}), count(*) from {source} group by 1 order by 1"),
        }
    }

    fn keeping(&mut self) -> String {
        let (keeping, source) = (self.one_of(&KEEPING), self.source());
        let mut sql = String::from("select ");
        for c in keeping.chars() {
            match c {
                '@' => sql.push_str(&self.value(2)),
                '#' => sql.push_str(&self.number()),
                c => sql.push(c),
            }
        }
        format!("{sql} from {source}")
    }

    /// Returns a statement with an array as text.
    fn array(&mut self) -> String {
        let array = array_text(self.rng).replace('\'', "''");
        let kind = self.one_of(&["bigint", "int", "float8", "real", "text", "boolean", "timestamptz", "numeric"]);
        match self.rng.u32(..4) {
            0 => format!("select '{array}'::{kind}[]"),
            1 => format!("select x from m where x = any('{array}')"),
            2 => format!("select count(*) from m where rig <> all('{array}'::{kind}[]) group by '{array}'::{kind}[]"),
            _ => format!("select unnest('{array}'::{kind}[]), x from m"),
        }
    }

    /// Returns a statement with aggregates over frames that move.
    fn frame(&mut self) -> String {
        let aggregate =
            self.one_of(&["sum", "avg", "var_pop", "stddev", "min", "max", "count", "median", "sum(distinct "]);
        let (unit, source) = (self.one_of(&["rows", "range", "groups"]), self.source());
        let (before, after) = (self.number(), self.number());
        let (key, value) = (self.one_of(&["time", "x", "y", "y, x", "s"]), self.one_of(&["x", "y", "y * x", "s"]));
        let aggregate = if aggregate.contains('(') { aggregate.to_owned() } else { format!("{aggregate}(") };
        format!(
            "select {aggregate}{value}) over (partition by {key} order by {key} {unit} between {before} preceding and \
             {after} following) from {source}"
        )
    }

    fn number(&mut self) -> String {
        match self.rng.u32(..8) {
            0 => self.one_of(&["-1", "0", "2147483647", "9223372036854775807", "null", "x"]).to_owned(),
            _ => (10f64.powf(self.rng.f64() * 10.0) as u64).to_string(),
        }
    }

    /// Returns an expression that may be large.
    fn value(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.one_of(&["s", "x", "y", "rig", "'x'", "time", "null"]).to_owned();
        }
        let mut value = String::new();
        for c in self.one_of(&LARGE).chars() {
            match c {
                '@' => value.push_str(&self.value(depth - 1)),
                '#' => value.push_str(&self.number()),
                c => value.push(c),
            }
        }
        value
    }

    fn source(&mut self) -> String {
        let number = self.number();
        self.one_of(&SOURCES).replace('#', &number)
    }

    /// Returns an expression of any kind.
    fn expression(&mut self, depth: usize) -> String {
        if depth == 0 || self.rng.u32(..6) == 0 {
            return self.one_of(&["x", "y", "s", "rig", "time", "1", "'a'", "null", "true", "now()"]).to_owned();
        }
        let deeper = depth - 1;
        match self.rng.u32(..9) {
            0 => {
                let operator = self.one_of(&[
                    "+",
                    "-",
                    "*",
                    "/",
                    "%",
                    "||",
                    "<",
                    "=",
                    "<>",
                    "and",
                    "or",
                    "like",
                    "~",
                    "->",
                    "@>",
                    "&&",
                    "|",
                    "is distinct from",
                    "^",
                    "<<",
                ]);
                format!("({} {operator} {})", self.expression(deeper), self.expression(deeper))
            }
            1 => {
                let kind = self.one_of(&["int", "bigint", "text", "float8", "timestamptz", "date", "numeric(38,10)"]);
                format!("({})::{kind}", self.expression(deeper))
            }
            2 => format!(
                "case when {} then {} else {} end",
                self.expression(deeper),
                self.expression(deeper),
                self.expression(deeper)
            ),
            3 => {
                let (open, _, close) = self.one_of(&NESTS);
                format!("{open}{}{close}", self.expression(deeper))
            }
            4 => self.value(2),
            5 => format!("({} in ({}, {}))", self.expression(deeper), self.expression(0), self.expression(0)),
            6 => format!("(select {} from m where {} limit 1)", self.expression(deeper), self.expression(deeper)),
            7 => {
                let function = self.one_of(&["sum", "max", "count", "avg", "stddev", "array_agg", "length", "abs"]);
                format!("{function}({})", self.expression(deeper))
            }
            _ => format!("({} between {} and {})", self.expression(deeper), self.number(), self.number()),
        }
    }
}

/// Returns an array as text: long, nested, quoted, or not closed.
pub(super) fn array_text(rng: &mut Rng) -> String {
    const ELEMENTS: [&str; 9] = ["1", "x", "NULL", "\"a b\"", "\"\\\"\"", "1e400", "NaN", "", "2026-01-01"];
    let count = PARTS_MAX.powf(rng.f64()) as usize;
    let depth = if rng.bool() { 1 } else { PARTS_MAX.powf(rng.f64()) as usize };
    let element = ELEMENTS[rng.usize(..ELEMENTS.len())];
    let close = if rng.u32(..4) == 0 { rng.usize(..=depth) } else { depth };
    let dimensions = if rng.u32(..8) == 0 { "[1:9]=" } else { "" };
    format!("{dimensions}{}{}{}", "{".repeat(depth), vec![element; count].join(","), "}".repeat(close))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_statement_again_within_bounds() {
        for seed in 0..500 {
            let make = || Grammar::new(&mut Rng::with_seed(seed)).statement();
            let sql = make();
            assert_eq!(sql, make(), "seed {seed}");
            assert!(sql.len() <= 2 * BYTES_MAX, "seed {seed}: {} bytes", sql.len());
        }
    }
}
