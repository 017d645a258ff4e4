//! Decodes journals with mysql_common and prints what it found in the last one, and the CPU time of that.

use std::{error::Error, fs::File, hint::black_box, io::BufReader};

use mysql_common::{
    binlog::{consts::BinlogVersion, events::EventData, row::BinlogRow, value::BinlogValue, BinlogFile},
    value::Value,
};

#[derive(Default)]
struct Found {
    changes: u64,
    images: u64,
    cells: u64,
    nulls: u64,
}

impl Found {
    fn count(&mut self, row: BinlogRow) -> Result<(), Box<dyn Error>> {
        self.images += 1;
        for value in row.unwrap() {
            self.cells += 1;
            match value {
                BinlogValue::Value(Value::NULL) => self.nulls += 1,
                BinlogValue::Jsonb(document) => {
                    let document: serde_json::Value = document.parse()?.into();
                    black_box(document.to_string());
                }
                value => {
                    black_box(value);
                }
            }
        }
        Ok(())
    }
}

fn decode(journal: &str) -> Result<Found, Box<dyn Error>> {
    let mut found = Found::default();
    let file = BufReader::with_capacity(1 << 20, File::open(journal)?);
    let mut events = BinlogFile::new(BinlogVersion::Version4, file)?;
    while let Some(event) = events.next() {
        if let Some(EventData::RowsEvent(rows)) = event?.read_data()? {
            let table = events.reader().get_tme(rows.table_id()).ok_or("no table map")?;
            for row in rows.rows(table) {
                let (before, after) = row?;
                found.changes += 1;
                for image in [before, after].into_iter().flatten() {
                    found.count(image)?;
                }
            }
        }
    }
    Ok(found)
}

fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut found = Found::default();
    let mut seconds = 0.0;
    for journal in std::env::args().skip(1) {
        let begin = cpu_seconds();
        found = decode(&journal)?;
        seconds = cpu_seconds() - begin;
    }
    let Found { changes, images, cells, nulls } = found;
    println!(
        "{}",
        serde_json::json!({"changes": changes, "images": images, "cells": cells, "nulls": nulls, "cpu_s": seconds})
    );
    Ok(())
}
