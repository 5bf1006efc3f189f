//! Parser of RealDB's definition language: hand-written, one token at a time.

use super::draft::{DefinitionFault, Draft, DraftElement, Placed, nearest};
use super::tokens::{Token, Tokens};
use super::{DEFINITION_BYTES_MAX, StoreDefinition};

/// Name as found. Quoted names are copied.
enum FoundName<'a> {
    Word(&'a str),
    Quoted(String),
}

impl FoundName<'_> {
    fn as_str(&self) -> &str {
        match self {
            FoundName::Word(word) => word,
            FoundName::Quoted(name) => name,
        }
    }
}

struct DefinitionReader<'a> {
    tokens: Tokens<'a>,
    /// Current token.
    token: Token<'a>,
    /// Byte offset at which it begins.
    at: usize,
}

/// Parses a definition.
pub(super) fn parse(text: &str) -> Result<StoreDefinition, DefinitionFault> {
    if text.len() > DEFINITION_BYTES_MAX {
        let size = text.len();
        return Err(DefinitionFault::new(
            0,
            format!("a definition of {size} bytes, at most {DEFINITION_BYTES_MAX} are read"),
        ));
    }
    let mut tokens = Tokens::new(text);
    let (at, token) = tokens.next()?;
    let mut reader = DefinitionReader { tokens, token, at };
    let mut draft = Draft::default();
    while reader.token != Token::End {
        if reader.takes("SET")? {
            reader.setting(&mut draft)?;
        } else if reader.takes("CREATE")? {
            reader.stream(&mut draft)?;
        } else {
            return Err(reader.unexpected("SET, CREATE or the end of the file", &["SET", "CREATE"]));
        }
    }
    draft.finish()
}

impl<'a> DefinitionReader<'a> {
    /// Advances to the next token, and returns the current one with its position.
    fn advance(&mut self) -> Result<Placed<Token<'a>>, DefinitionFault> {
        let (at, token) = self.tokens.next()?;
        let taken = Placed::new(std::mem::replace(&mut self.at, at), std::mem::replace(&mut self.token, token));
        Ok(taken)
    }

    fn unexpected(&self, expected: &str, words: &[&str]) -> DefinitionFault {
        let hint = match self.token {
            Token::Word(word) => nearest(word, words.iter().copied()),
            _ => String::new(),
        };
        DefinitionFault::new(self.at, format!("found {}, expected {expected}{hint}", self.token.describe()))
    }

    /// Skips the current token if it is this keyword. Returns whether it was.
    fn takes(&mut self, keyword: &str) -> Result<bool, DefinitionFault> {
        let is = matches!(self.token, Token::Word(word) if word.eq_ignore_ascii_case(keyword));
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn keyword(&mut self, keyword: &str) -> Result<(), DefinitionFault> {
        if self.takes(keyword)? { Ok(()) } else { Err(self.unexpected(keyword, &[keyword])) }
    }

    fn takes_sign(&mut self, sign: char) -> Result<bool, DefinitionFault> {
        let is = self.token == Token::Sign(sign);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn sign(&mut self, sign: char) -> Result<(), DefinitionFault> {
        if self.takes_sign(sign)? { Ok(()) } else { Err(self.unexpected(&format!("\"{sign}\""), &[])) }
    }

    fn name(&mut self, expected: &str) -> Result<Placed<FoundName<'a>>, DefinitionFault> {
        match self.token {
            Token::Word(_) | Token::Quoted(_) => {}
            _ => return Err(self.unexpected(expected, &[])),
        }
        let taken = self.advance()?;
        Ok(Placed::new(
            taken.at,
            match taken.is {
                Token::Quoted(name) => FoundName::Quoted(name),
                Token::Word(word) => FoundName::Word(word),
                _ => FoundName::Word(""),
            },
        ))
    }

    fn word(&mut self, expected: &str) -> Result<Placed<&'a str>, DefinitionFault> {
        let Token::Word(word) = self.token else { return Err(self.unexpected(expected, &[])) };
        Ok(Placed::new(self.advance()?.at, word))
    }

    /// Reads a non-negative integer.
    fn whole(&mut self, expected: &str) -> Result<Placed<u64>, DefinitionFault> {
        match self.token {
            Token::Number(number) => match number.parse() {
                Ok(whole) => Ok(Placed::new(self.advance()?.at, whole)),
                Err(_) => Err(self.unexpected(expected, &[])),
            },
            _ => Err(self.unexpected(expected, &[])),
        }
    }

    /// Parses `setting = number`, after `SET`.
    fn setting(&mut self, draft: &mut Draft) -> Result<(), DefinitionFault> {
        let name = self.word("the name of a setting, such as fileSize")?;
        // Report an unknown setting before errors in what follows it.
        Draft::default().set(name, Placed::new(name.at, 1))?;
        self.sign('=')?;
        let value = self.whole("a whole number of 1 or more")?;
        draft.set(name, value)
    }

    /// Parses `STREAM name WITH ID number { … }`, after `CREATE`.
    fn stream(&mut self, draft: &mut Draft) -> Result<(), DefinitionFault> {
        self.keyword("STREAM")?;
        let name = self.name("the name of a stream")?;
        self.keyword("WITH")?;
        self.keyword("ID")?;
        let id = self.whole("an id: a whole number of 0 or more")?;
        draft.stream(Placed::new(name.at, name.is.as_str()), id)?;
        self.sign('{')?;
        while self.token != Token::Sign('}') {
            self.element(draft)?;
            if !self.takes_sign(',')? {
                break;
            }
        }
        draft.end_stream()?;
        if self.token == Token::Sign('}') {
            self.advance()?;
            return Ok(());
        }
        Err(self.unexpected("\",\", \"}\", NULL or WITH CODEC", &["NULL", "WITH"]))
    }

    /// Parses `name type [NULL] [WITH CODEC …]`.
    fn element(&mut self, draft: &mut Draft) -> Result<(), DefinitionFault> {
        let name = self.name("the name of an element, or \"}\"")?;
        let mut type_name = self.word("a type, such as float")?;
        if self.takes_sign('[')? {
            // The length of an array, or nothing.
            if matches!(self.token, Token::Number(_)) {
                self.advance()?;
            }
            let end = self.at + 1;
            self.sign(']')?;
            type_name.is = self.tokens.between(type_name.at, end);
        }
        let mut element = DraftElement::new(Placed::new(name.at, name.is.as_str()), type_name);
        element.optional = self.takes("NULL")?;
        if self.takes("WITH")? {
            self.keyword("CODEC")?;
            element.codec = Some(self.word("a codec, such as StepAlgorithm")?);
            if self.takes("PARAMS")? {
                self.parameters(&mut element)?;
            }
        }
        draft.element(&element)
    }

    /// Parses `(name = number, …)`, after `PARAMS`.
    fn parameters<'e>(&mut self, element: &mut DraftElement<'e>) -> Result<(), DefinitionFault>
    where
        'a: 'e,
    {
        self.sign('(')?;
        loop {
            let name = self.word("the name of a parameter, such as deadband")?;
            self.sign('=')?;
            let Token::Number(number) = self.token else { return Err(self.unexpected("a number", &[])) };
            self.advance()?;
            // Number tokens are finite.
            element.parameters.push((name, number.parse().unwrap_or(f64::NAN)));
            if element.parameters.len() > 16 {
                return Err(DefinitionFault::new(name.at, "more than 16 parameters"));
            }
            if !self.takes_sign(',')? {
                break;
            }
        }
        self.sign(')')
    }
}
