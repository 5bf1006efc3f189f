//! Frames as InfluxDB line protocol.

use std::fmt::Write;

use crate::channel::{Cell, PadStream};

/// Writer of the lines of one stream.
#[derive(Clone, Debug)]
pub struct LineWriter {
    head: String,
    names: Vec<String>,
}

impl LineWriter {
    /// Returns a writer for a stream: measurement and tags, and the names of its fields.
    pub fn new(stream: &PadStream) -> Self {
        let mut head = stream.table.clone();
        for (key, value) in &stream.tags {
            let _ = write!(head, ",{key}={value}");
        }
        let names = stream.channels.iter().enumerate();
        let names = names.map(|(i, c)| format!("{}{}=", if i == 0 { ' ' } else { ',' }, c.name)).collect();
        LineWriter { head, names }
    }

    /// Appends a line with a time in nanoseconds since 1970 UTC. Numbers are the shortest decimals that parse to the
    /// same f32 or f64.
    pub fn push(&self, time_ns: i64, cells: &[Cell], out: &mut String) {
        out.push_str(&self.head);
        for (name, cell) in self.names.iter().zip(cells) {
            out.push_str(name);
            // Writing to a String cannot fail.
            let _ = match cell {
                Cell::Quantised { value, .. } | Cell::F32(value) => write!(out, "{value}"),
                Cell::F64(value) => write!(out, "{value}"),
                Cell::I64(value) => write!(out, "{value}i"),
                Cell::Bool(value) => out.write_char(if *value { 't' } else { 'f' }),
                Cell::Text(value) => write!(out, "\"{value}\""),
            };
        }
        let _ = writeln!(out, " {time_ns}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pad::{Pad, PadOptions};

    #[test]
    fn lines_read_back_as_the_values_sent() {
        let mut pad = Pad::new(PadOptions::default());
        let writers: Vec<LineWriter> = pad.streams().iter().map(LineWriter::new).collect();
        let mut lines = 0;
        pad.frames(1.0, |frame, stream, cells| {
            let mut line = String::new();
            writers[frame.stream].push(1_700_000_000_000_000_000 + frame.time_ns, cells, &mut line);
            let line = line.strip_suffix('\n').unwrap();
            let mut parts = line.split(' ');
            let head = parts.next().unwrap();
            assert!(head.starts_with(&stream.table));
            let fields: Vec<&str> = parts.next().unwrap().split(',').collect();
            assert_eq!(parts.next().unwrap().parse::<i64>().unwrap(), 1_700_000_000_000_000_000 + frame.time_ns);
            assert_eq!(parts.next(), None);
            assert_eq!(fields.len(), cells.len());
            for ((field, cell), channel) in fields.iter().zip(cells).zip(&stream.channels) {
                let text = field.strip_prefix(&format!("{}=", channel.name)).unwrap();
                match cell {
                    Cell::Quantised { value, .. } | Cell::F32(value) => {
                        assert_eq!(text.parse::<f32>().unwrap(), *value)
                    }
                    Cell::F64(value) => assert_eq!(text.parse::<f64>().unwrap(), *value),
                    Cell::I64(value) => assert_eq!(text, format!("{value}i")),
                    Cell::Bool(value) => assert_eq!(text, if *value { "t" } else { "f" }),
                    Cell::Text(value) => assert_eq!(text, format!("\"{value}\"")),
                }
            }
            lines += 1;
        });
        assert!(lines > 1000);
    }

    #[test]
    fn a_tagged_stream_names_its_tags() {
        let pad = Pad::new(PadOptions::default());
        let stream = pad.streams().iter().find(|s| s.table == "avionics.sensor_values").unwrap();
        let mut line = String::new();
        LineWriter::new(stream).push(7, &[Cell::F32(4.31), Cell::F32(3.0)], &mut line);
        assert_eq!(line, "avionics.sensor_values,acu=1 p_lox_tank=4.31,p_fuel_tank=3 7\n");
    }
}
