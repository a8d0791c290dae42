#!/usr/bin/env bash
# Runs fuzz targets for some seconds each, on stable Rust and without cargo-fuzz:
#   fuzz/run.sh 60               every target for a minute
#   fuzz/run.sh 60 journal api   these two
# A target starts from its stored corpus. What it finds is kept in fuzz/target/found/TARGET; an input that
# breaks something is kept there too, its path is printed, and the run ends with 1.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?how many seconds for each target}
shift
# What `cargo fuzz` passes to see which branches an input takes. No sanitizer: there is no unsafe code.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
 -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
RUSTFLAGS=$(echo $RUSTFLAGS)
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0
failed=0
for workspace in . devices daemon; do
  for file in "$workspace"/fuzz_targets/*.rs; do
    target=$(basename "$file" .rs)
    [[ $# -eq 0 || " $* " == *" $target "* ]] || continue
    # The same versions as everywhere else; with --target, for build scripts take no such flags.
    [[ -f $workspace/Cargo.lock ]] || cp ../Cargo.lock "$workspace/Cargo.lock"
    cargo build --quiet --manifest-path "$workspace/Cargo.toml" --bin "$target" --target "$host"
    found=target/found/$target
    mkdir -p "$found"
    echo "== $target: $(ls "$workspace/corpus/$target" | wc -l) stored inputs"
    target/"$host"/debug/"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
      -print_final_stats=1 -artifact_prefix="$found/broken-" "$found" "$workspace/corpus/$target" \
      2> "$found.log" || { failed=1; echo "BROKEN: see fuzz/$found.log"; }
    grep -E 'stat::number_of_executed_units|stat::peak_rss_mb' "$found.log" || tail -3 "$found.log"
    grep ' cov: ' "$found.log" | tail -1 || true
  done
done
exit $failed
