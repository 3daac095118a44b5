//! The chunkers that compare bytes: every instruction set cuts as the loop over bytes does, and the loop as a naive
//! twin.

use crate::{cuts, random};
use onefold_chunk::{
    ChunkLimits, Chunker, Fingerprint,
    ae::{Ae, Isa},
    ram::Ram,
    seqcdc::{SeqCdc, SeqParameters},
};
use proptest::prelude::*;

/// Random bytes below `alphabet`, each repeated up to `run` times.
fn bytes(seed: u64, len: usize, alphabet: u8, run: usize) -> Vec<u8> {
    let noise = random(seed, len);
    let mut out = Vec::with_capacity(len + run);
    for pair in noise.chunks(2) {
        let times = 1 + usize::from(*pair.last().expect("one at least")) % run;
        out.extend(std::iter::repeat_n(pair[0] % alphabet, times));
        if out.len() >= len {
            break;
        }
    }
    out.resize(len, 0);
    out
}

/// RAM's loop as in its paper.
fn naive_ram(data: &[u8], window: usize, max: usize) -> usize {
    let data = &data[..data.len().min(max)];
    let mut largest = 0;
    for (i, byte) in data.iter().enumerate() {
        if i >= window && *byte >= largest {
            return i + 1;
        }
        largest = largest.max(*byte);
    }
    data.len()
}

/// AE's loop as in its paper; the value of a position is `VALUE` bytes.
pub fn naive_ae<const VALUE: usize>(data: &[u8], window: usize, max: usize) -> usize {
    let data = &data[..data.len().min(max)];
    let (mut largest, mut at): (&[u8], usize) = (&[0; VALUE], 0);
    for (i, value) in data.windows(VALUE).enumerate() {
        if value > largest {
            (largest, at) = (value, i);
        } else if i >= at + window {
            return i;
        }
    }
    data.len()
}

fn naive_seqcdc(data: &[u8], limits: ChunkLimits, parameters: SeqParameters) -> usize {
    let data = &data[..data.len().min(limits.max)];
    let (mut ups, mut downs, mut at) = (0, 0, limits.min);
    while at < data.len() {
        match data[at].cmp(&data[at - 1]) {
            std::cmp::Ordering::Greater => ups += 1,
            std::cmp::Ordering::Less => (ups, downs) = (0, downs + 1),
            std::cmp::Ordering::Equal => {}
        }
        if ups == parameters.sequence {
            return at;
        }
        if downs == parameters.trigger {
            at += parameters.skip;
            (ups, downs) = (0, 0);
        }
        at += 1;
    }
    data.len()
}

fn all_cuts(data: &[u8], cut: impl Fn(&[u8]) -> usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        lengths.push(cut(rest));
        rest = &rest[lengths[lengths.len() - 1]..];
    }
    lengths
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_instruction_set_cuts_as_the_papers_loop(
        seed: u64,
        len in 0usize..60_000,
        mean in 256usize..9000,
        alphabet in 1u8..=255,
        run in 1usize..9,
    ) {
        let data = bytes(seed, len, alphabet, run);
        let (ram, ae) = (Ram::new(mean), Ae::new(mean));
        let ram_naive = all_cuts(&data, |data| naive_ram(data, ram.limits().min - 1, ram.limits().max));
        let ae_naive = all_cuts(&data, |data| naive_ae::<8>(data, ae.limits().min, ae.limits().max));
        for isa in Isa::available() {
            prop_assert_eq!(&cuts(ram.on(isa).expect("available"), &data), &ram_naive, "{:?}", isa);
            prop_assert_eq!(&cuts(ae.on(isa).expect("available"), &data), &ae_naive, "{:?}", isa);
        }
    }

    #[test]
    fn every_instruction_set_finds_the_same_sequences(
        seed: u64,
        len in 0usize..60_000,
        sizes in (1usize..3000, 0usize..6000),
        alphabet in 2u8..=255,
        run in 1usize..90,
        sequence in 1u32..=16,
        trigger in 1u32..200,
        skip in 0usize..500,
    ) {
        let data = bytes(seed, len, alphabet, run);
        let limits = ChunkLimits { min: sizes.0, mean: sizes.0, max: sizes.0 + sizes.1 };
        let parameters = SeqParameters { sequence, trigger, skip };
        let seqcdc = SeqCdc::tuned(limits, parameters).expect("in range");
        let naive = all_cuts(&data, |data| naive_seqcdc(data, limits, parameters));
        for isa in Isa::available() {
            prop_assert_eq!(&cuts(seqcdc.on(isa).expect("available"), &data), &naive, "{:?}", isa);
        }
    }
}

/// Lengths that the crate `seq_chunking` 0.1.0 gives with the paper's parameters. It counts the byte that triggers a
/// skip as skipped, which the authors' own program does not: its `jump_size` was 257 to make up for that.
#[test]
fn seqcdc_cuts_as_another_program() {
    let limits = ChunkLimits {
        min: 4096,
        mean: 8192,
        max: 16_384,
    };
    let seqcdc = SeqCdc::tuned(limits, SeqParameters::PAPER).expect("in range");
    let lengths = cuts(seqcdc, &random(7, 4 << 20));
    assert_eq!(lengths[..6], [6617, 4117, 12_754, 6592, 10_210, 5556]);
    let bytes: Vec<u8> = lengths
        .iter()
        .flat_map(|length| (*length as u32).to_le_bytes())
        .collect();
    assert_eq!(
        (lengths.len(), Fingerprint::of(&bytes).to_string()),
        (
            611,
            "ddcf6301549cd45cd3f9a080df2a9368af9978e47b9e078b5c6005b2356d1a90".to_string()
        )
    );
}
