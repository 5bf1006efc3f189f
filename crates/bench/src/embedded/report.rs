//! Tables and plots of a run.

use std::fmt::Write;
use std::path::Path;

use super::scale::{self, ScaleResult};
use super::{Data, EmbeddedResult};
use crate::machine::Machine;
use crate::table::{Table, short};

/// Returns a table of one course loaded in one way.
pub(super) fn table(results: &[EmbeddedResult]) -> Table {
    let mut table = Table::new([
        "engine",
        "points/s",
        "CPU ns/point",
        "bytes/point",
        "written/size",
        "files MiB",
        "memory MiB",
        "recovery ms",
        "open ms",
        "range ms",
        "aggregate/s",
        "scan/s",
        "lookup µs",
        "commits/s",
    ]);
    for result in results {
        let (loaded, read) = (&result.loaded, &result.read);
        let bytes = bytes_a_point(result);
        table.row([
            result.engine.clone(),
            short(loaded.points as f64 / loaded.seconds),
            format!("{:.0}", loaded.cpu_s * 1e9 / loaded.points as f64),
            bytes.map_or("–".into(), |bytes| format!("{bytes:.2}")),
            format!("{:.2}", loaded.written_bytes as f64 / result.size_bytes as f64),
            format!("{:.0}", result.size_bytes as f64 / 1048576.0),
            // Below that, reading the course took more memory than the engine.
            if loaded.rss_mib < 0.5 { "–".into() } else { format!("{:.0}", loaded.rss_mib) },
            format!("{:.1}", result.recovery_s * 1e3),
            format!("{:.1}", read.open_s * 1e3),
            format!("{:.2}", read.range_s * 1e3),
            short(read.rows.iter().sum::<u64>() as f64 / read.aggregate_s),
            short(read.scanned_points as f64 / read.scan_s),
            format!("{:.1}", read.lookup_us),
            short(loaded.commits as f64 / loaded.seconds),
        ]);
    }
    table
}

/// Returns the bytes per point of the files with its rows, if the engine reports them.
fn bytes_a_point(result: &EmbeddedResult) -> Option<f64> {
    let (bytes, of) = result.read.blocks.unwrap_or((result.size_bytes, result.read.scanned_points));
    (of > 0).then(|| bytes as f64 / of as f64)
}

/// Writes `embedded.md` and its plots.
pub(super) fn write(
    dir: &Path,
    machine: &Machine,
    results: &[EmbeddedResult],
    scale: &[ScaleResult],
    failures: &[String],
) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut text = String::from(HEAD);
    writeln!(text, "\nThe machine: {}.", machine.line())?;
    for data in [Data::Vehicle, Data::Frames, Data::Pad, Data::Quiet] {
        let of_data: Vec<&EmbeddedResult> = results.iter().filter(|r| r.data == data).collect();
        let Some(first) = of_data.first() else { continue };
        let name = clap::ValueEnum::to_possible_value(&data).map_or_else(String::new, |v| v.get_name().to_owned());
        let (title, what) = data.describe().split_once(": ").unwrap_or((data.describe(), ""));
        writeln!(text, "\n## {}\n\n{}.", capital(title), capital(what))?;
        let whole: Vec<&EmbeddedResult> = of_data.iter().copied().filter(|r| r.run == first.run).collect();
        let bar = |value: fn(&EmbeddedResult) -> Option<f64>| -> Vec<(&str, f64)> {
            whole.iter().filter_map(|r| Some((r.engine.as_str(), value(r)?))).collect()
        };
        let loaded = bar(|r| Some(r.loaded.points as f64 / r.loaded.seconds));
        let sizes = bar(bytes_a_point);
        let plots =
            [("load", format!("points a second, {}", first.run), loaded), ("size", "bytes a point".to_owned(), sizes)];
        for (plot, title, values) in plots {
            let file = format!("embedded-{name}-{plot}.svg");
            std::fs::write(dir.join(&file), bars(&title, &values))?;
            writeln!(text, "\n![{title}]({file})")?;
        }
        let runs = results.chunk_by(|a, b| a.data == b.data && a.run == b.run);
        for run in runs.filter(|run| run[0].data == data) {
            writeln!(text, "\n{}:\n\n{}", capital(&run[0].run), table(run).markdown().trim_end())?;
        }
        if let Some(part) = of_data.iter().find(|r| r.part) {
            let mut points: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
            for result in of_data.iter().filter(|r| r.commit == part.commit && r.keep_s == 0) {
                let at = (result.loaded.frames as f64, result.recovery_s * 1e3);
                match points.iter_mut().find(|(engine, _)| *engine == result.engine) {
                    Some((_, line)) => line.push(at),
                    None => points.push((&result.engine, vec![at])),
                }
            }
            points.iter_mut().for_each(|(_, line)| line.sort_by(|a, b| a.0.total_cmp(&b.0)));
            let (file, title) = (format!("embedded-{name}-recovery.svg"), "recovery after a kill, in ms, by records");
            std::fs::write(dir.join(&file), lines(title, &points))?;
            writeln!(text, "\n![{title}]({file})")?;
        }
    }
    if !failures.is_empty() {
        writeln!(text, "\n## What failed\n")?;
        failures.iter().try_for_each(|failure| writeln!(text, "- {}", failure.replace('\n', " ")))?;
    }
    if let Some(table) = writes(results) {
        writeln!(text, "\n{WRITES}\n\n{}", table.markdown().trim_end())?;
    }
    if !scale.is_empty() {
        text += &scale::section(scale)?;
    }
    Ok(std::fs::write(dir.join("embedded.md"), text)?)
}

const WRITES: &str = "## Bytes written\n
What Strongback wrote by its own account, as multiples of its blocks at the end: *all but the log* is blocks, footers, \
checkpoints and what settle wrote. Runs that delete old rows are left out, and parts of runs.";

/// Returns a table of how often the final data was written, or `None` if no engine reports it.
fn writes(results: &[EmbeddedResult]) -> Option<Table> {
    let mut table =
        Table::new(["data", "run", "engine", "blocks MiB", "log MiB", "log", "settle", "all but the log", "all"]);
    let mut any = false;
    for result in results.iter().filter(|r| !r.part && r.keep_s == 0) {
        let (Some(writes), Some((bytes, _))) = (result.loaded.writes, result.read.blocks) else { continue };
        any = true;
        let times = |of: u64| format!("{:.2}", of as f64 / bytes as f64);
        table.row([
            format!("{:?}", result.data).to_lowercase(),
            result.run.clone(),
            result.engine.clone(),
            format!("{:.1}", bytes as f64 / 1048576.0),
            format!("{:.0}", writes.log_bytes as f64 / 1048576.0),
            times(writes.log_bytes),
            times(writes.settle_bytes),
            times(writes.all_bytes - writes.log_bytes),
            times(writes.all_bytes),
        ]);
    }
    any.then_some(table)
}

const HEAD: &str = "# The store as a recorder\n
`strongback bench embedded --report docs/benchmarks` wrote this page. Each engine runs in a process of its own on the same \
frames with the same commits, all of them synced, is killed when it has taken them, and is opened and read in another \
process; a figure counts only if every row that was committed is there and the sums agree. An engine that is slower than the \
time limit takes less of a course. *CPU* is of all threads while it loads (with sealing and compaction, as far as they ran by \
then), *bytes/point* of the files once it was opened again (of Strongback its blocks, of MariaDB its tables' files, without \
what is preallocated), *written/size* what the kernel says was written against what the files take, *memory* the most that it held beyond what reading the course took before, *recovery* the opening \
after the kill until the newest row is read, *open* the next one (of MariaDB both with the start of the server), *range* the \
middle hundredth of the first stream, *aggregate* count, sum, least and greatest of each stream's first channel, in rows, \
*scan* every value read into the client.
";

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

const WIDTH: f64 = 760.0;
const OURS: &str = "#1f6feb";
const OTHERS: &str = "#8b949e";

fn open_svg(height: f64, title: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    svg += &format!("<text x=\"10\" y=\"20\" font-weight=\"bold\">{}</text>\n", escaped(&capital(title)));
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn ours(engine: &str) -> bool {
    engine.starts_with("strongback")
}

/// Draws a bar for each engine, from zero.
fn bars(title: &str, values: &[(&str, f64)]) -> String {
    let most = values.iter().map(|v| v.1).fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = open_svg(38.0 + 24.0 * values.len() as f64, title);
    for (at, (engine, value)) in values.iter().enumerate() {
        let y = 34.0 + 24.0 * at as f64;
        let width = (value / most * (WIDTH - 300.0)).max(1.0);
        let colour = if ours(engine) { OURS } else { OTHERS };
        let shown = if *value < 1000.0 { format!("{value:.2}") } else { short(*value) };
        svg += &format!("<text x=\"190\" y=\"{}\" text-anchor=\"end\">{}</text>", y + 13.0, escaped(engine));
        svg += &format!("<rect x=\"200\" y=\"{y}\" width=\"{width:.1}\" height=\"17\" fill=\"{colour}\"/>");
        svg += &format!("<text x=\"{:.1}\" y=\"{}\">{shown}</text>\n", 206.0 + width, y + 13.0);
    }
    svg + "</svg>\n"
}

/// Draws a line for each engine; the vertical axis is logarithmic.
fn lines(title: &str, values: &[(&str, Vec<(f64, f64)>)]) -> String {
    let all = || values.iter().flat_map(|(_, line)| line.iter());
    let x_most = all().map(|p| p.0).fold(1.0, f64::max);
    let y_least = all().map(|p| p.1).fold(f64::INFINITY, f64::min).max(1e-3).log10().floor();
    let y_most = all().map(|p| p.1).fold(1e-3, f64::max).log10().ceil().max(y_least + 1.0);
    let x = |v: f64| 60.0 + v / x_most * (WIDTH - 280.0);
    let y = |v: f64| 290.0 - (v.max(1e-3).log10() - y_least) / (y_most - y_least) * 250.0;
    let mut svg = open_svg(320.0, title);
    for decade in y_least as i32..=y_most as i32 {
        let value = 10f64.powi(decade);
        svg += &format!("<path d=\"M60 {0:.1}H{1:.1}\" stroke=\"#d0d7de\"/>", y(value), x(x_most));
        svg += &format!("<text x=\"54\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>\n", y(value) + 4.0);
    }
    for part in 0..=4 {
        let value = x_most * f64::from(part) / 4.0;
        svg += &format!("<text x=\"{:.1}\" y=\"310\" text-anchor=\"middle\">{}</text>\n", x(value), short(value));
    }
    // Place names next to the ends of their lines, without overlap.
    let mut ends: Vec<(f64, f64, &str)> =
        values.iter().filter_map(|(engine, line)| line.last().map(|p| (y(p.1), x(p.0), *engine))).collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = f64::MIN;
    for (end, right, engine) in &ends {
        let at = end.max(free);
        free = at + 15.0;
        let colour = if ours(engine) { OURS } else { OTHERS };
        svg += &format!("<path d=\"M{right:.1} {end:.1}L{:.1} {at:.1}\" stroke=\"#d0d7de\"/>", x(x_most) + 14.0);
        let label = x(x_most) + 18.0;
        svg += &format!("<text x=\"{label:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>\n", at + 4.0, escaped(engine));
    }
    for (engine, line) in values {
        let colour = if ours(engine) { OURS } else { OTHERS };
        let path: Vec<String> = line.iter().map(|p| format!("{:.1} {:.1}", x(p.0), y(p.1))).collect();
        svg += &format!("<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n", path.join("L"));
        for p in line {
            svg += &format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>\n", x(p.0), y(p.1));
        }
    }
    svg + "</svg>\n"
}
