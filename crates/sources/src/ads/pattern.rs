//! Patterns of symbol names. `*` matches any run of characters, including dots; `?` matches one. Case is ignored, as in
//! the PLC. A pattern that matches a structure or an array matches everything in it.

/// Reports whether a pattern matches a name, or a structure or array that contains it.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // Position to resume at after a mismatch: the star takes one more character. Only the last star has to be retried,
    // so this takes at most pattern × name steps.
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let done = p == pattern.len();
        if done && (n == name.len() || matches!(name[n], b'.' | b'[')) {
            return true;
        }
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(&wanted) if n < name.len() && (wanted == b'?' || wanted.eq_ignore_ascii_case(&name[n])) => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((after, taken)) if taken < name.len() => {
                    star = Some((after, taken + 1));
                    (p, n) = (after, taken + 1);
                }
                _ => return false,
            },
        }
    }
}

/// Reports whether a pattern may match anything in a symbol. `false` saves splitting it.
pub fn can_match(pattern: &str, symbol: &str) -> bool {
    let literal = pattern.find(['*', '?']).unwrap_or(pattern.len());
    let shared = literal.min(symbol.len());
    pattern.as_bytes()[..shared].eq_ignore_ascii_case(&symbol.as_bytes()[..shared])
}

/// Reports whether a pattern is a plain name.
pub fn is_name(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_symbols_and_what_is_in_them() {
        for (pattern, name, right) in [
            ("MAIN.p", "MAIN.p", true),
            ("main.P", "MAIN.p", true),
            ("MAIN.p", "MAIN.pressure", false),
            ("MAIN.tank", "MAIN.tank.p", true),
            ("MAIN.tank", "MAIN.tank[3].p", true),
            ("MAIN.tank[3]", "MAIN.tank[3].p", true),
            ("MAIN.tank[3]", "MAIN.tank[30].p", false),
            ("MAIN.*", "MAIN.tank.p", true),
            ("*.p", "MAIN.tank.p", true),
            ("*.p", "MAIN.tank.pp", false),
            ("*.p?", "MAIN.tank.pp", true),
            ("*tank*p", "MAIN.tank.x.p", true),
            ("*a*b*c", "xaxbxaxbx", false),
            ("*", "", true),
            ("MAIN.?", "MAIN.", false),
        ] {
            assert_eq!(matches(pattern, name), right, "{pattern} {name}");
            assert!(!right || can_match(pattern, name), "{pattern} {name}");
        }
        assert!(!can_match("GVL.*", "MAIN.p"));
        assert!(can_match("MAIN.tank.p", "MAIN.tank") && can_match("MA*", "MAIN.p"));
    }
}
