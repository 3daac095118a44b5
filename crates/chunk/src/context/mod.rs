//! Context-aware chunking (PRUNE, Min et al. 2010, §4.3): the type of a file tells how it is cut and whether its chunks
//! are compressed.
//!
//! PRUNE cuts immutable, media and compressed files at fixed sizes, since searching them for cuts is useless work, and
//! all others by content; a second parameter leaves media uncompressed. PRUNE judges a file by its extension. Here an
//! extension is believed only if the content does not contradict it, and the table is finer:
//!
//! | how | what | why |
//! |---|---|---|
//! | `content` | all else | cuts by [sieve](crate::sieve) |
//! | `whole` | media, compressed and encrypted streams | one chunk up to [`WHOLE_BYTES_MAX`], then chunks of that size: fewer entries in the index than PRUNE's fixed sizes, for the same duplicates |
//! | `fixed` | databases | their pages have one size and are changed in place |
//! | `tar` | archives | cut at their members, see [`tar`](crate::tar) |
//!
//! Archives whose parts are compressed one by one (zip and formats built on it) are cut by content, unlike in PRUNE:
//! unchanged parts are found again. Eight versions of one wheel, 411 MiB, take 170 MiB this way and 404 MiB cut at
//! every MiB; and leaving their chunks uncompressed would cost 12 % more, because tables of contents and small parts in
//! them shrink.
//!
//! **How a type is found.** In this order: a rule for the extension; the type that the first bytes show, if the table
//! has it; a line for the extension, unless the first bytes would show that type and do not (then the extension lies);
//! content, compressed.
//!
//! **Downside.** Media whose tags are edited in front, with everything behind moved, are stored again as a whole; a
//! rule `content as-is mp3` undoes that.
//!
//! **Rules** are lines of `HOW compress|as-is EXTENSION…`, as in the built-in table (`types.txt`). `#` begins a
//! comment; later lines count.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::fixed::Fixed;
use crate::sieve::Sieve;
use crate::tar::{Tar, Tars};
use crate::whole_file::WholeFile;
use crate::{ChunkLimits, Chunker, StreamHints};

/// The longest chunk of a file that is stored whole, in bytes.
pub const WHOLE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a stream that are looked at: signatures lie within.
const HEAD_BYTES: usize = 8192;
/// Longest extension that is looked up, in bytes.
const EXTENSION_BYTES_MAX: usize = 16;

/// How a stream is cut.
///
/// ```
/// use onefold_chunk::context::{Cut, Rules};
///
/// assert_eq!(Rules::default().choose(Some(b"sqlite"), b"SQLite format 3\0").cut, Cut::Fixed);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// At cut points that the content determines.
    Content,
    /// At every multiple of a fixed size.
    Fixed,
    /// Not at all up to [`WHOLE_BYTES_MAX`], then at every multiple of it.
    Whole,
    /// At the members of a tar archive.
    Tar,
}

/// How to cut a stream, and whether to compress its chunks.
///
/// ```
/// use onefold_chunk::context::{Choice, Rules};
///
/// assert_eq!(Rules::default().choose(None, b"some text"), Choice::USUAL);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// How it is cut.
    pub cut: Cut,
    /// Whether its chunks are worth compressing.
    pub is_compressible: bool,
}

impl Choice {
    /// The choice for streams of unknown type.
    pub const USUAL: Self = Self {
        cut: Cut::Content,
        is_compressible: true,
    };
}

/// Choices by type of file. [`Default`] has the built-in table alone.
///
/// ```
/// use onefold_chunk::{Chunker, StreamHints, context::{Context, Rules}};
///
/// let rules = Rules::with("fixed compress log")?;
/// let mut context = Context::new(8192, None, rules.into());
/// context.begin(&StreamHints::of(b"server.log", b"GET /"));
/// assert_eq!(context.cut(&[b'a'; 100_000]), 8192);
/// # Ok::<(), onefold_chunk::context::BadRule>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rules {
    built_in: HashMap<Vec<u8>, Choice>,
    given: HashMap<Vec<u8>, Choice>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            built_in: parse(include_str!("types.txt")).expect("the built-in table is well-formed"),
            given: HashMap::new(),
        }
    }
}

impl Rules {
    /// The built-in table with the rules `text` added, which take precedence.
    ///
    /// ```
    /// use onefold_chunk::context::{Choice, Cut, Rules};
    ///
    /// let rules = Rules::with("content as-is mp3 # tags are edited\n")?;
    /// let mp3 = Choice { cut: Cut::Content, is_compressible: false };
    /// assert_eq!(rules.choose(Some(b"MP3"), b"ID3"), mp3);
    /// // A PNG, whatever its name says.
    /// let png = Choice { cut: Cut::Whole, is_compressible: false };
    /// assert_eq!(rules.choose(Some(b"txt"), b"\x89PNG\r\n\x1a\n"), png);
    /// # Ok::<(), onefold_chunk::context::BadRule>(())
    /// ```
    ///
    /// # Errors
    /// [`BadRule`]: the first line that is no rule, and why.
    pub fn with(text: &str) -> Result<Self, BadRule> {
        Ok(Self {
            given: parse(text)?,
            ..Self::default()
        })
    }

    /// The choice for a stream with this extension (without the dot, in any case) that begins with `head`.
    pub fn choose(&self, extension: Option<&[u8]>, head: &[u8]) -> Choice {
        let extension = extension
            .filter(|extension| extension.len() <= EXTENSION_BYTES_MAX)
            .map(<[u8]>::to_ascii_lowercase);
        if let Some(extension) = &extension
            && let Some(choice) = self.given.get(extension)
        {
            return *choice;
        }
        let head = &head[..head.len().min(HEAD_BYTES)];
        if let Some(found) = infer::get(head)
            && let Some(choice) = self.line(found.extension().as_bytes())
        {
            return choice;
        }
        let believed = extension.filter(|extension| !shows_itself(extension));
        believed
            .and_then(|extension| self.line(&extension))
            .unwrap_or(Choice::USUAL)
    }

    fn line(&self, extension: &[u8]) -> Option<Choice> {
        let given = self.given.get(extension);
        given.or_else(|| self.built_in.get(extension)).copied()
    }
}

/// Whether streams of this type are known by their first bytes.
fn shows_itself(extension: &[u8]) -> bool {
    std::str::from_utf8(extension).is_ok_and(infer::is_supported)
}

/// A line of a rule file that is no rule.
///
/// ```
/// use onefold_chunk::context::Rules;
///
/// assert_eq!(Rules::with("content as-is mp3\nsliced as-is ogg").unwrap_err().line, 2);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRule {
    /// Number of the line, from 1.
    pub line: usize,
    /// Description of the error.
    pub what: String,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for BadRule {}

fn parse(text: &str) -> Result<HashMap<Vec<u8>, Choice>, BadRule> {
    let mut all = HashMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        let mut words = line.split_whitespace();
        let Some(how) = words.next() else { continue };
        let choice = choice(how, words.next().unwrap_or(""));
        let choice = choice.map_err(|what| BadRule { line: at + 1, what })?;
        for extension in words {
            let extension = extension.trim_start_matches('.').to_ascii_lowercase();
            all.insert(extension.into_bytes(), choice);
        }
    }
    Ok(all)
}

fn choice(how: &str, compress: &str) -> Result<Choice, String> {
    Ok(Choice {
        cut: match how {
            "content" => Cut::Content,
            "fixed" => Cut::Fixed,
            "whole" => Cut::Whole,
            "tar" => Cut::Tar,
            _ => {
                return Err(format!("\"{how}\", expected content, fixed, whole or tar"));
            }
        },
        is_compressible: match compress {
            "compress" => true,
            "as-is" => false,
            _ => return Err(format!("\"{compress}\", expected compress or as-is")),
        },
    })
}

/// Cuts every stream in the way of its type. See the module.
///
/// [`Chunker::begin`] must be called for each stream; until then streams are cut by content.
///
/// ```
/// use onefold_chunk::{Chunker, StreamHints, context::Context};
///
/// let mut context = Context::new(8192, None, Default::default());
/// let photo = [&b"\xff\xd8\xff\xe0"[..], &[7; 50_000]].concat();
/// context.begin(&StreamHints { extension: Some(b"jpg"), head: &photo });
/// assert_eq!(context.cut(&photo), photo.len());
/// assert!(!context.is_compressible());
/// ```
pub struct Context {
    rules: Arc<Rules>,
    content: Sieve,
    fixed: Fixed,
    whole: WholeFile,
    tar: Tar<Sieve>,
    choice: Choice,
}

impl Context {
    /// A chunker whose chunks have `mean` bytes by content or at a fixed size; `key` makes cut points secret.
    pub fn new(mean: usize, key: Option<&[u8; 32]>, rules: Arc<Rules>) -> Self {
        let content = match key {
            Some(key) => Sieve::keyed(mean, key),
            None => Sieve::new(mean),
        };
        Self {
            rules,
            tar: Tar::new(content.clone(), Tars::Magic),
            content,
            fixed: Fixed::new(mean),
            whole: WholeFile::new(WHOLE_BYTES_MAX),
            choice: Choice::USUAL,
        }
    }

    fn chosen(&mut self) -> &mut dyn Chunker {
        match self.choice.cut {
            Cut::Content => &mut self.content,
            Cut::Fixed => &mut self.fixed,
            Cut::Whole => &mut self.whole,
            Cut::Tar => &mut self.tar,
        }
    }
}

impl Chunker for Context {
    /// The limits of all chunkers together that may be chosen.
    fn limits(&self) -> ChunkLimits {
        let content = self.content.limits();
        ChunkLimits {
            min: 1,
            max: content.max.max(WHOLE_BYTES_MAX),
            ..content
        }
    }

    fn cut(&mut self, data: &[u8]) -> usize {
        self.chosen().cut(data)
    }

    fn cuts(&mut self, data: &[u8], ends: bool, chunk: &mut dyn FnMut(usize)) -> usize {
        self.chosen().cuts(data, ends, chunk)
    }

    fn begin(&mut self, hints: &StreamHints<'_>) {
        self.choice = self.rules.choose(hints.extension, hints.head);
        self.chosen().begin(hints);
    }

    fn is_compressible(&self) -> bool {
        self.choice.is_compressible
    }
}
