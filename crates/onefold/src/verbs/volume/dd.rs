//! `onefold volume dd`: writes a file with hints, as the report's `dd` did.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::copying::Copying;
use super::hinted_file::HintedFile;
use super::hinter::HintName;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::human;
use crate::out::Out;
use crate::signal;

/// Bytes of a block, where none are given.
const BLOCK_BYTES: u64 = 1 << 20;
/// No block is longer, since it is in RAM.
const BLOCK_BYTES_MAX: u64 = 256 << 20;

/// Write a file of an attached volume with hints
///
/// The file's places are allocated and hinted ahead of what is written; in the end everything is on the disk, and the
/// hints are over. Operands are those of dd: if=FILE (default: standard input), of=FILE, bs=SIZE (default: 1M), count=N
/// blocks (default: all that there is), and hint=nodedup or hint=incompressible, several parted by commas.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Operands, as in hint=nodedup if=/dev/urandom of=/mnt/big bs=1M count=4096
    #[arg(value_name = "OPERAND=VALUE", required = true)]
    pub operands: Vec<String>,
}

/// The operands, parsed.
#[derive(PartialEq, Eq, Debug)]
struct Operands {
    input: Option<PathBuf>,
    output: PathBuf,
    block_bytes: u64,
    count: Option<u64>,
    hints: Vec<HintName>,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit> {
    let _listening = signal::listen();
    let operands = Operands::parse(&args.operands).map_err(Error::Usage)?;
    let (mut input, size, from) = open_input(operands.input.as_deref())?;
    let bytes_max = match operands.count {
        Some(count) => count.saturating_mul(operands.block_bytes),
        None => u64::MAX,
    };
    let bytes_expected = match (size, operands.count) {
        (Some(size), _) => Some(size.min(bytes_max)),
        (None, Some(_)) => Some(bytes_max),
        (None, None) => None,
    };
    let kinds = operands.hints.iter().copied().map(Into::into).collect();
    let mut target = HintedFile::create(&operands.output, &input, kinds, bytes_expected)?;
    let copying = Copying {
        from,
        block_bytes: operands.block_bytes as usize,
        bytes_max,
        bytes_expected,
        out,
    };
    let mut read = |buffer: &mut [u8], _| read_block(&mut input, buffer);
    let copied = copying.run(&mut read, &mut target);
    // Also where the copy failed: its hints must not last.
    let finished = target.finish();
    let copied = copied?;
    finished?;
    copying.tell(&copied)
}

/// The input, its size where it is a file, and its name.
fn open_input(path: Option<&Path>) -> Result<(File, Option<u64>, String)> {
    let name = match path {
        Some(path) => path.display().to_string(),
        None => "standard input".into(),
    };
    let failed = |error| Error::io(format!("open {name}"), error);
    let file = match path {
        Some(path) => File::open(path).map_err(failed)?,
        None => File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?),
    };
    let found = file.metadata().map_err(failed)?;
    let size = (path.is_some() && found.is_file()).then_some(found.len());
    Ok((file, size, name))
}

/// Reads a whole block, or what is left: a pipe gives less at a time.
fn read_block(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match input.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl Operands {
    fn parse(texts: &[String]) -> Result<Self, String> {
        let (mut input, mut output, mut count) = (None, None, None);
        let (mut block_bytes, mut hints) = (BLOCK_BYTES, Vec::new());
        for text in texts {
            let unknown =
                || format!("{text:?} is no operand: there are if=, of=, bs=, count= and hint=");
            let (name, value) = text.split_once('=').ok_or_else(unknown)?;
            match name {
                "if" => input = Some(value.into()),
                "of" => output = Some(value.into()),
                "bs" => block_bytes = human::parse_bytes(value)?,
                "count" => {
                    let number = value.parse();
                    count = Some(number.map_err(|_| format!("{value:?} is no number of blocks"))?);
                }
                "hint" => {
                    for name in value.split(',') {
                        hints.push(parse_hint(name)?);
                    }
                }
                _ => return Err(unknown()),
            }
        }
        if !(1..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err("a block has 1 byte to 256M".into());
        }
        let output = output.ok_or("there is no of=FILE to write to")?;
        Ok(Self {
            input,
            output,
            block_bytes,
            count,
            hints,
        })
    }
}

/// A hint for what is written.
fn parse_hint(name: &str) -> Result<HintName, String> {
    match HintName::from_str(name, false) {
        Ok(HintName::Prefetch) => Err(
            "dd gives hints for what it writes, and prefetch is one for what is read: `onefold volume cp --hint prefetch`"
                .into(),
        ),
        Ok(hint) => Ok(hint),
        Err(_) => Err(format!(
            "no hint is named {name:?}; there are nodedup and incompressible"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Operands, String> {
        let texts: Vec<_> = text.split(' ').map(str::to_owned).collect();
        Operands::parse(&texts)
    }

    #[test]
    fn operands_are_those_of_dd() {
        let parsed = parse("hint=nodedup if=/dev/urandom of=/mnt/big bs=64K count=3");
        assert_eq!(
            parsed,
            Ok(Operands {
                input: Some("/dev/urandom".into()),
                output: "/mnt/big".into(),
                block_bytes: 64 << 10,
                count: Some(3),
                hints: vec![HintName::Nodedup],
            })
        );
        for (wrong, word) in [
            ("of", "of="),
            ("if=a", "of=FILE"),
            ("of=a oflag=direct", "oflag"),
            ("of=a bs=0", "256M"),
            ("of=a bs=1G", "256M"),
            ("of=a count=many", "many"),
            ("of=a hint=prefetch", "cp"),
            ("of=a hint=nodedup,fast", "fast"),
        ] {
            let error = parse(wrong).expect_err(wrong);
            assert!(error.contains(word), "{wrong}: {error}");
        }
    }
}
