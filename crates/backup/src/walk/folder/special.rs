//! Devices, pipes and sockets that are sources. Below a folder each is an entry only. But a user who names one wants
//! its content: it is read as a stream if [`Options::read_special`](crate::walk::Options::read_special) says so, else
//! it is an error that nothing of it is saved.

use std::os::fd::OwnedFd;

use super::FolderVisit;
use crate::meta::Stat;
use crate::{Error, Kind};

impl FolderVisit<'_> {
    /// Whether the source is read as a stream; where it is a link, `stat` becomes that of the link's target.
    pub(super) fn is_stream(&mut self, dir: &OwnedFd, name: &[u8], stat: &mut Stat) -> bool {
        let is_link = stat.kind == Kind::Symlink;
        let itself = if is_link {
            Stat::at(dir, name, true)
        } else {
            Ok(*stat)
        };
        let Ok(itself) = itself else { return false };
        let what = match itself.kind {
            Kind::BlockDevice => "a block device",
            Kind::CharDevice => "a character device",
            Kind::Fifo => "a pipe",
            Kind::Socket => "a socket",
            Kind::File | Kind::Dir | Kind::Symlink => return false,
        };
        let is_stream = self.options.read_special && itself.kind != Kind::Socket;
        if is_stream {
            *stat = itself
        } else {
            let error = Error::Special { what, is_link };
            self.piece.errors.push((self.path_of(name), error));
        }
        is_stream
    }
}
