//! Whether a large file is what an earlier snapshot says: the parent's opinion from what `stat` gives, and the answer.

use crate::Content;

/// The parent's opinion of a large file that is about to be read.
pub enum Hint {
    /// The parent has no entry that helps: a file elsewhere may look the same.
    Nothing,
    /// The file has this content, if all that `stat` gives can be trusted.
    Same(Content),
    /// The parent has this content. Size and time of change are the same, but the ctime is not: the file got another
    /// owner or name, or was written by a program that puts the time of change back.
    Touched(Content),
    /// Chunks of the parent's content are not where the parent says any more.
    Lost,
}

/// The answer to whether a file is what an earlier snapshot says.
pub enum TraceVerdict {
    /// No snapshot has anything of the file that is worth a comparison.
    Unknown,
    /// The file has this content, of which so many bytes are data.
    Same(Content, u64),
    /// The file was compared and differs. So many bytes of data were read for that.
    Other(u64),
}
