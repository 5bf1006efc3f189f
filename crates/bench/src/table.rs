//! Tables printed to standard output.

/// Rows of text under a head; callers format the numbers.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with its head.
    pub fn new<const N: usize>(head: [&str; N]) -> Table {
        Table { rows: vec![head.map(String::from).to_vec()] }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// Prints the table in Markdown.
    pub fn print(&self) {
        print!("{}", self.markdown());
    }

    /// Returns the table in Markdown, aligned: the first column left, the others right.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let columns = self.rows[0].len();
        let width = |c: usize| self.rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (i, row) in self.rows.iter().enumerate() {
            let mut line = String::from("|");
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c] - cell.chars().count());
                let (before, after) = if c == 0 { ("", pad.as_str()) } else { (pad.as_str(), "") };
                line.push_str(&format!(" {before}{cell}{after} |"));
            }
            text += &line;
            text.push('\n');
            if i == 0 {
                let rule: Vec<String> = widths
                    .iter()
                    .enumerate()
                    .map(|(c, w)| if c == 0 { "-".repeat(w + 2) } else { format!("{}:", "-".repeat(w + 1)) })
                    .collect();
                text += &format!("|{}|\n", rule.join("|"));
            }
        }
        text
    }
}

/// Formats 1234567.0 as `1.23 M`, 1234.0 as `1,234`.
pub fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 1e3 => format!("{},{:03}", (v as u64) / 1000, (v as u64) % 1000),
        v => format!("{v:.0}"),
    }
}
