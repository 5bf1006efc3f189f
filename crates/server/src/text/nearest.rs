//! Names similar to an unknown one.

/// Max bytes of an unknown name for which similar ones are searched: a longer one is no typing error.
const NAME_BYTES_MAX: usize = 128;
/// Max names listed.
const LISTED_MAX: usize = 3;

/// Returns the names most similar to an unknown one, the nearest first, without regard to case and, unless it has tags
/// itself, to tags. Comparing takes up to 0.1 ms a name; the caller limits their number.
pub fn nearest(unknown: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    if unknown.len() > NAME_BYTES_MAX {
        return Vec::new();
    }
    let asked = unknown.to_lowercase();
    let length = asked.chars().count();
    let most = (length / 2).max(3);
    let distance = |name: &str| {
        let is_near = name.chars().count().abs_diff(length) <= most;
        is_near.then(|| strsim::damerau_levenshtein(&asked, &name.to_lowercase()))
    };
    let mut found: Vec<(usize, String)> = Vec::new();
    for full in names {
        let plain = full.split('{').next().filter(|plain| plain.len() < full.len());
        let nearer = [Some(full.as_str()), plain].into_iter().flatten().filter_map(distance).min();
        if let Some(distance) = nearer.filter(|distance| *distance <= most)
            && !found.iter().any(|(_, known)| *known == full)
        {
            found.push((distance, full));
            found.sort();
            found.truncate(LISTED_MAX);
        }
    }
    found.into_iter().map(|(_, full)| full).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_long_names_are_not_compared() {
        let names = || ["tank.p{n=1}", "tank.t{n=1}", "pump.rpm", "tank.pressure"].map(str::to_owned).into_iter();
        assert_eq!(nearest("Tank.p", names()), ["tank.p{n=1}", "tank.t{n=1}"]);
        assert_eq!(nearest("pmup.rpm", names().chain(names())), ["pump.rpm"]);
        let long = "x".repeat(4_000);
        assert!(nearest("tank.p", (0..4).map(|_| long.clone())).is_empty());
        let unlisted = std::iter::from_fn(|| -> Option<String> { panic!("no name is looked at") });
        assert!(nearest(&long, unlisted).is_empty());
    }
}
