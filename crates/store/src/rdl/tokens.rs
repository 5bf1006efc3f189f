//! Words, numbers and signs of the definition language, one after the other.

use super::draft::DefinitionFault;

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A word: a keyword or a name.
    Word(&'a str),
    /// A name in quotes, without them.
    Quoted(String),
    /// A number as it is written.
    Number(&'a str),
    /// One of `{ } ( ) , =`.
    Sign(char),
    /// Nothing is left.
    End,
}

impl Token<'_> {
    /// How an error calls it.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Word(word) => format!("{word:?}"),
            Token::Quoted(name) => format!("the name {name:?}"),
            Token::Number(number) => format!("the number {number}"),
            Token::Sign(sign) => format!("\"{sign}\""),
            Token::End => "the end of the file".to_owned(),
        }
    }
}

/// Reads tokens from a text, comments and white space passed over.
pub(super) struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Tokens<'a> {
        // A byte order mark is nothing.
        Tokens { text, at: if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 } }
    }

    /// What stands between two places.
    pub(super) fn between(&self, from: usize, to: usize) -> &'a str {
        self.text.get(from..to).unwrap_or_default()
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take_while(&mut self, is: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !is(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    /// The next token and the byte it begins at.
    pub(super) fn next(&mut self) -> Result<(usize, Token<'a>), DefinitionFault> {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest().starts_with('#') {
                break;
            }
            self.take_while(|c| c != '\n');
        }
        let at = self.at;
        let Some(first) = self.rest().chars().next() else { return Ok((at, Token::End)) };
        let token = match first {
            '{' | '}' | '(' | ')' | '[' | ']' | ',' | '=' => {
                self.at += 1;
                Token::Sign(first)
            }
            '"' => self.quoted()?,
            '0'..='9' | '+' | '-' | '.' => self.number()?,
            c if c == '_' || c.is_alphabetic() => {
                Token::Word(self.take_while(|c| matches!(c, '_' | '.') || c.is_alphanumeric()))
            }
            other => return Err(DefinitionFault::new(at, format!("{other:?} has no meaning here"))),
        };
        Ok((at, token))
    }

    fn quoted(&mut self) -> Result<Token<'a>, DefinitionFault> {
        let begin = self.at;
        self.at += 1;
        let mut name = String::new();
        loop {
            name.push_str(self.take_while(|c| !matches!(c, '"' | '\n')));
            if !self.rest().starts_with('"') {
                return Err(DefinitionFault::new(begin, "this quote is not closed on its line"));
            }
            self.at += 1;
            if !self.rest().starts_with('"') {
                return Ok(Token::Quoted(name));
            }
            self.at += 1;
            name.push('"');
        }
    }

    /// Decimal digits with sign, fraction and exponent; what they come to is for the reader to see.
    fn number(&mut self) -> Result<Token<'a>, DefinitionFault> {
        let begin = self.at;
        let mut before = ' ';
        let rest = self.rest();
        let end = rest.find(|c: char| {
            let sign = matches!(c, '+' | '-') && matches!(before, ' ' | 'e' | 'E');
            before = c;
            !(sign || c.is_ascii_alphanumeric() || matches!(c, '.' | '_'))
        });
        let number = &rest[..end.unwrap_or(rest.len())];
        self.at += number.len();
        let decimal = number.chars().all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E'));
        if !decimal || !number.parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(DefinitionFault::new(begin, format!("{number:?} is not a decimal number")));
        }
        Ok(Token::Number(number))
    }
}
