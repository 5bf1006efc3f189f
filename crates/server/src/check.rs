//! `strongback check`: is this configuration what its writer means?

use crate::cli::CheckArgs;
use crate::config::Config;
use crate::outcome::Outcome;
use strongback_sources::config::SourceKind;

/// Checks a configuration and says what it would do.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn run(args: &CheckArgs) -> anyhow::Result<Outcome> {
    let config = Config::read(&args.config)?;
    config.check_listens()?;
    config.token()?;
    let streams: usize = config.source.iter().map(|s| s.stream.len()).sum();
    let channels: usize = config.source.iter().flat_map(|s| &s.stream).map(|s| s.channel.len()).sum();
    let plcs = config.source.iter().filter(|s| s.kind == SourceKind::Ads).count();
    let packets = config.source.len() - plcs;
    let groups: usize = config.source.iter().map(|s| s.group.len()).sum();
    println!(
        "{}: right. {packets} packet sources with {streams} streams and {channels} channels; {plcs} PLCs with {groups} groups \
         of symbols; {} notes on channels; data in {}",
        args.config.display(),
        config.channel.len(),
        config.data_dir.display()
    );
    config.retention.iter().for_each(|group| println!("  {group}"));
    Ok(Outcome::Done)
}
