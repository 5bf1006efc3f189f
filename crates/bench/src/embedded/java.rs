//! Embedded engines that run in a Java process, prepared by `peers/embedded/prepare.sh`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Available rivals.
pub(super) struct JavaRivals {
    java: String,
    class_path: String,
    recipes: PathBuf,
    /// Name with version, and the feeder's name for it.
    pub(super) engines: Vec<(String, String)>,
}

impl JavaRivals {
    /// Runs the recipe. Returns `None`, after printing the reason, if there is no recipe or it fails.
    pub(super) fn prepare(peers: Option<&Path>) -> Option<JavaRivals> {
        let recipes = peers.unwrap_or(Path::new("peers"));
        let script = recipes.join("embedded/prepare.sh");
        let left_out = |why: &str| {
            println!("H2, Derby, DuckDB, RocksDB and MariaDB left out: {why}");
            None
        };
        if !script.is_file() {
            return left_out(&format!("no recipe {}", script.display()));
        }
        let out = match Command::new(&script).output() {
            Ok(out) if out.status.success() => out,
            Ok(out) => {
                let said = String::from_utf8_lossy(&out.stderr);
                return left_out(said.trim().lines().last().unwrap_or("the recipe failed"));
            }
            Err(error) => return left_out(&format!("{}: {error}", script.display())),
        };
        let printed = String::from_utf8_lossy(&out.stdout).into_owned();
        let mut lines = printed.lines();
        let (Some(java), Some(class_path), Some(versions)) = (lines.next(), lines.next(), lines.next()) else {
            return left_out("the recipe said too little");
        };
        let words: Vec<&str> = versions.split_whitespace().collect();
        let title = |key: &str| match key {
            "h2" => "H2",
            "derby" => "Derby",
            "duckdb" => "DuckDB",
            "innodb" => "MariaDB InnoDB",
            "aria" => "MariaDB Aria",
            _ => "RocksDB",
        };
        let engines = words.chunks_exact(2).map(|pair| (format!("{} {}", title(pair[0]), pair[1]), pair[0].to_owned()));
        if !words.contains(&"innodb") {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            println!("MariaDB left out: {}", said.trim().lines().last().unwrap_or("its recipe failed"));
        }
        Some(JavaRivals {
            java: java.into(),
            class_path: class_path.into(),
            recipes: recipes.to_owned(),
            engines: engines.collect(),
        })
    }

    /// Returns the feeder's command, without its arguments.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.java);
        command.arg("-Xmx4g").arg(format!("-Drecipes={}", self.recipes.display()));
        command.args(["-cp", self.class_path.as_str(), "Feeder"]);
        command
    }
}
