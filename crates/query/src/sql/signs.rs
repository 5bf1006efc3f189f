//! Signs that follow an operator without a blank, as in `a>-5`.
//!
//! In PostgreSQL an operator of several characters ends in `+` or `-` only if it also has one of ``~!@#%^&|`?``
//! (documentation, section 4.1.3). The tokenizer takes `>-` for an operator of that name.

use datafusion::sql::sqlparser::tokenizer::Token;

/// Returns an operator and the signs that follow it as tokens of their own, and any other token unchanged.
pub(crate) fn apart(token: Token) -> Vec<Token> {
    let Token::CustomBinaryOperator(name) = &token else { return vec![token] };
    let operator = name.trim_end_matches(['+', '-']);
    let first = match operator {
        "=" => Token::Eq,
        "<" => Token::Lt,
        ">" => Token::Gt,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        "*" => Token::Mul,
        "/" => Token::Div,
        _ => return vec![token],
    };
    let signs = name[operator.len()..].chars().map(|sign| if sign == '+' { Token::Plus } else { Token::Minus });
    std::iter::once(first).chain(signs).collect()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    #[test]
    fn signs_are_apart_from_comparisons_and_not_from_other_operators() {
        let tokens = |sql: &str| Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().unwrap();
        let found = |sql: &str| -> Vec<Token> { tokens(sql).into_iter().flat_map(apart).collect() };
        for operator in ["=", "<", ">", "<=", ">=", "<>", "*", "/"] {
            for sign in ["-", "+", "+-"] {
                let spaced = tokens(&format!("a{operator} {sign}5"));
                let spaced: Vec<_> =
                    spaced.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
                assert_eq!(found(&format!("a{operator}{sign}5")), spaced, "{operator}{sign}");
            }
        }
        assert_eq!(found("a->5"), tokens("a->5"));
    }
}
