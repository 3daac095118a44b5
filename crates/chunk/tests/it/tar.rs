//! Tar streams.

use std::collections::HashSet;

use crate::{cuts, random};
use ::tar::{Builder, EntryType, Header};
use onefold_chunk::tar::{Tar, Tars};
use onefold_chunk::{ChunkStream, Chunker, by_name};
use proptest::prelude::*;

const MEAN: usize = 2048;

fn sieve() -> Box<dyn Chunker> {
    by_name("sieve", MEAN, None).expect("sieve is known")
}

fn header(kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(0o644);
    header.set_mtime(1_700_000_000);
    header
}

/// An archive of files with these contents, among folders.
pub fn archive(contents: &[Vec<u8>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (i, content) in contents.iter().enumerate() {
        let mut folder = header(EntryType::Directory, 0);
        let mut file = header(EntryType::Regular, content.len());
        builder
            .append_data(&mut folder, format!("folder-{i}/"), &[][..])
            .expect("in memory");
        builder
            .append_data(&mut file, format!("folder-{i}/file"), &content[..])
            .expect("in memory");
    }
    builder.into_inner().expect("in memory")
}

fn chunks(chunker: impl Chunker, data: &[u8]) -> Vec<Vec<u8>> {
    let mut at = 0;
    let lengths = cuts(chunker, data).into_iter();
    lengths
        .map(|length| {
            at += length;
            data[at - length..at].to_vec()
        })
        .collect()
}

fn tar_chunks(data: &[u8]) -> Vec<Vec<u8>> {
    chunks(Tar::new(sieve(), Tars::Magic), data)
}

/// Asserts that every content is found in the archive as the chunks of a stream of its own.
fn assert_contents_apart(archive: &[u8], contents: &[Vec<u8>]) {
    let found: HashSet<Vec<u8>> = tar_chunks(archive).into_iter().collect();
    for content in contents {
        for chunk in chunks(sieve(), content) {
            assert!(found.contains(&chunk), "{} bytes", content.len());
        }
    }
}

fn contents() -> Vec<Vec<u8>> {
    let sizes = [0, 1, 511, 512, 513, 3000, 40_000, 0, 100_352];
    sizes
        .iter()
        .enumerate()
        .map(|(i, size)| random(i as u64, *size))
        .collect()
}

#[test]
fn members_are_cut_as_the_files_are() {
    assert_contents_apart(&archive(&contents()), &contents());
}

#[test]
fn next_weeks_archive_is_mostly_that_of_this_week() {
    let mut files: Vec<_> = (0..60).map(|i| random(i, 100 * i as usize)).collect();
    let before: HashSet<_> = tar_chunks(&archive(&files)).into_iter().collect();
    files[30] = random(1000, 5000);
    let after = tar_chunks(&archive(&files));
    let new: usize = after
        .iter()
        .filter(|chunk| !before.contains(*chunk))
        .map(Vec::len)
        .sum();
    // The file changed, and the headers around it.
    assert!(new < 5000 + 4 * 1024, "{new} new bytes");
}

#[test]
fn long_names_and_pax_records_are_understood() {
    let contents = contents();
    let mut gnu = Builder::new(Vec::new());
    let mut pax = Builder::new(Vec::new());
    for (i, content) in contents.iter().enumerate() {
        let name = format!("{}/{i}", "long".repeat(40));
        let mut long = Header::new_gnu();
        long.set_size(content.len() as u64);
        long.set_mode(0o644);
        gnu.append_data(&mut long, &name, &content[..])
            .expect("in memory");
        let size = content.len().to_string();
        let records = [("mtime", &b"1700000000.25"[..]), ("size", size.as_bytes())];
        pax.append_pax_extensions(records).expect("in memory");
        // The header's own size must not be used.
        let mut wrong = header(EntryType::Regular, 7);
        wrong.set_path(format!("{i}")).expect("short");
        wrong.set_cksum();
        let out = pax.get_mut();
        out.extend_from_slice(wrong.as_bytes());
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    assert_contents_apart(&gnu.into_inner().expect("in memory"), &contents);
    assert_contents_apart(&pax.into_inner().expect("in memory"), &contents);
}

#[test]
fn sizes_in_base_256_and_sparse_maps_are_understood() {
    let content = random(5, 30_000);
    let mut data = Vec::new();
    let mut big = header(EntryType::Regular, 0);
    big.as_mut_bytes()[124..136].fill(0);
    big.as_mut_bytes()[124] = 0x80;
    big.as_mut_bytes()[128..136].copy_from_slice(&30_000u64.to_be_bytes());
    big.set_cksum();
    data.extend_from_slice(big.as_bytes());
    data.extend_from_slice(&content);
    data.resize(data.len().next_multiple_of(512), 0);
    let mut sparse = Header::new_gnu();
    sparse.set_entry_type(EntryType::GNUSparse);
    sparse.set_size(30_000);
    sparse.as_mut_bytes()[482] = 1;
    sparse.set_cksum();
    data.extend_from_slice(sparse.as_bytes());
    for more in [1, 0] {
        let mut map = [b'7'; 512];
        map[504] = more;
        data.extend_from_slice(&map);
    }
    data.extend_from_slice(&content);
    data.resize(data.len().next_multiple_of(512) + 1024, 0);
    let found = tar_chunks(&data);
    for chunk in chunks(sieve(), &content) {
        let times = found.iter().filter(|other| **other == chunk).count();
        assert_eq!(times, 2);
    }
}

#[test]
fn archives_one_behind_the_other_are_understood() {
    let mut both = archive(&contents()[..6]);
    both.extend(archive(&contents()[6..]));
    assert_contents_apart(&both, &contents());
}

#[test]
fn what_is_no_tar_is_cut_as_without() {
    let mut old = archive(&contents());
    old[257..265].fill(0);
    let sum = old[..512].iter().map(|byte| u32::from(*byte)).sum::<u32>()
        - old[148..156]
            .iter()
            .map(|byte| u32::from(*byte))
            .sum::<u32>()
        + 8 * 32;
    old[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    assert_eq!(tar_chunks(&old), chunks(sieve(), &old));
    assert_ne!(
        chunks(Tar::new(sieve(), Tars::Checksum), &old),
        chunks(sieve(), &old)
    );
    let ones = |byte| vec![byte; 5000];
    for other in [
        ones(0x80),
        ones(0xff),
        ones(b'7'),
        vec![0; 50_000],
        random(9, 50_000),
        vec![],
        vec![1; 100],
    ] {
        assert_eq!(tar_chunks(&other), chunks(sieve(), &other));
    }
}

#[test]
fn no_first_block_is_refused() {
    for i in 0..2000 {
        let data = random(i, 600);
        assert_eq!(tar_chunks(&data), [data]);
    }
}

#[test]
fn behind_a_wrong_header_all_is_cut_as_without() {
    let content = random(1, 10_000);
    let mut data = archive(std::slice::from_ref(&content));
    data.truncate(data.len() - 1024);
    let good = data.len();
    data.extend(random(2, 30_000));
    let found = tar_chunks(&data);
    let behind: Vec<_> = chunks(sieve(), &data[good..]);
    assert_eq!(found[found.len() - behind.len()..], behind);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn pieces_and_damage_do_no_harm(
        sizes in proptest::collection::vec(0usize..9000, 0..12),
        damage in proptest::collection::vec((0usize..100_000, any::<u8>()), 0..4),
        pieces in proptest::collection::vec(1usize..9000, 1..9),
        cut_off in 0usize..3000,
        name in proptest::sample::select(vec!["sieve", "sieve-adaptive", "fixed", "gear", "ae", "seqcdc"]),
    ) {
        let contents: Vec<_> = sizes.iter().enumerate().map(|(i, size)| random(i as u64, *size)).collect();
        let mut data = archive(&contents);
        data.truncate(data.len().saturating_sub(cut_off));
        for (at, byte) in damage {
            if let Some(place) = data.get_mut(at) {
                *place = byte;
            }
        }
        let new = || Tar::new(by_name(name, MEAN, None).expect("a known name"), Tars::Magic);
        let expected = cuts(new(), &data);
        let mut stream = ChunkStream::new(new());
        let mut found = Vec::new();
        let (mut rest, mut sizes) = (&data[..], pieces.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*sizes.next().expect("a cycle")));
            stream.feed(piece, |chunk| found.push(chunk.len()));
            rest = after;
        }
        stream.finish(|chunk| found.push(chunk.len()));
        prop_assert_eq!(found.iter().sum::<usize>(), data.len());
        prop_assert_eq!(found, expected);
    }
}
