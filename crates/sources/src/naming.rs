//! Renames tags whose names are reserved.

/// Returns a free name for a tag: with the suffix `_tag`, plus a number if that is taken, such as `time_tag` or
/// `time_tag_2`.
pub(crate) fn free_tag(tag: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let stem = format!("{tag}_tag");
    let mut name = stem.clone();
    let mut n = 2;
    while is_taken(&name) {
        name = format!("{stem}_{n}");
        n += 1;
    }
    name
}
