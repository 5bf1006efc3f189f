//! Estimates the memory that parsing and planning a statement takes, before it is parsed.
//!
//! Measured on statements of many shapes: what counts is their tokens, how deep they nest (the stack of the planner),
//! and the queries and tables after common tables are inlined.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::sql::extent::{Extent, longest_chain};

/// Bytes while a text is split into tokens, per byte of text.
const SPLIT_BYTES: usize = 150;
/// Bytes of the parsed tree, per token.
const TREE_TOKEN_BYTES: usize = 300;
/// Bytes of the parsed tree, per query.
const TREE_QUERY_BYTES: usize = 10 << 10;
/// Bytes of planning, per token.
const TOKEN_BYTES: usize = 2 << 10;
/// Bytes of planning, per operator of the longest chain.
const CHAIN_BYTES: usize = 36 << 10;
/// Bytes of planning, per query, per level of queries, and per table.
const QUERY_BYTES: usize = 50 << 10;
const DEPTH_BYTES: usize = 150 << 10;
const TABLE_BYTES: usize = 300 << 10;
/// Bytes of planning, per column of several tables.
const COLUMN_BYTES: usize = 4 << 10;

/// Memory of a statement's text, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Parsed tree, which is held from parsing until the statement is planned.
    pub(crate) tree_bytes: usize,
    /// What a step of parsing or planning takes while it runs.
    pub(crate) working_bytes: usize,
}

impl Footprint {
    /// Estimates splitting a text of this length into tokens.
    pub(crate) fn of_text(bytes: usize) -> Footprint {
        Footprint { tree_bytes: bytes, working_bytes: bytes.saturating_mul(SPLIT_BYTES) }
    }

    /// Estimates parsing these tokens of a text of `bytes` bytes.
    pub(crate) fn of_tokens(tokens: &[Token], bytes: usize) -> Footprint {
        let queries = tokens.iter().filter(|token| is_query(token)).count();
        Footprint {
            tree_bytes: bytes + tokens.len() * TREE_TOKEN_BYTES + queries * TREE_QUERY_BYTES,
            working_bytes: tokens.len() * TOKEN_BYTES + longest_chain(tokens) * CHAIN_BYTES,
        }
    }

    /// Estimates planning a statement of this extent, one of those parsed.
    pub(crate) fn with(self, extent: &Extent) -> Footprint {
        let times = |count: u64, bytes: usize| usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(bytes);
        let more = [
            times(extent.queries.max(extent.written), QUERY_BYTES),
            times(extent.depth, DEPTH_BYTES),
            times(extent.tables, TABLE_BYTES),
            if extent.tables > 1 { times(extent.columns, COLUMN_BYTES) } else { 0 },
        ];
        let working_bytes = more.into_iter().fold(self.working_bytes, usize::saturating_add);
        Footprint { working_bytes, ..self }
    }

    /// Returns the larger of two in each respect.
    pub(crate) fn max(self, other: Footprint) -> Footprint {
        Footprint {
            tree_bytes: self.tree_bytes.max(other.tree_bytes),
            working_bytes: self.working_bytes.max(other.working_bytes),
        }
    }
}

/// Reports whether a token begins a query.
pub(crate) fn is_query(token: &Token) -> bool {
    matches!(token, Token::Word(word) if matches!(word.keyword, Keyword::SELECT | Keyword::TABLE | Keyword::VALUES))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn working_mib(sql: &str) -> usize {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().unwrap();
        let tokens: Vec<Token> = tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
        Footprint::of_tokens(&tokens, sql.len()).working_bytes >> 20
    }

    #[test]
    fn short_texts_can_be_large() {
        assert_eq!(
            working_mib("select time, x from m where time > now() - interval '1 hour' order by time limit 10"),
            0
        );
        assert!(working_mib(&format!("select x{} from m", "+x".repeat(1_490))) > 40);
        assert!(working_mib(&format!("select x{} from m", ",x".repeat(29_000))) > 80);
    }
}
