//! Tokens of the definition language: words, numbers and signs.

use super::draft::DefinitionFault;

/// Token of the definition language.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// Keyword or name.
    Word(&'a str),
    /// Quoted name, without the quotes.
    Quoted(String),
    /// Number as written.
    Number(&'a str),
    /// One of `{ } ( ) [ ] , =`.
    Sign(char),
    /// End of the text.
    End,
}

impl Token<'_> {
    /// Returns the description of the token for errors.
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

/// Reader of tokens from a text. Skips comments and white space.
pub(super) struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Tokens<'a> {
        // Skip a byte order mark.
        Tokens { text, at: if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 } }
    }

    /// Returns the text between two byte offsets.
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

    /// Reads the next token. Returns it with the byte offset at which it begins.
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

    /// Reads a decimal number with sign, fraction and exponent. Its value is left to the caller.
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
