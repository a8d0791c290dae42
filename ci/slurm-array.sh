#!/usr/bin/env bash
# Slurm: a hundred seeds over ten array tasks, then one verdict:
#   parts=$(sbatch --parsable ci/slurm-array.sh) && sbatch --dependency=afterany:$parts --wrap 'lightloom merge part-*.json'
#SBATCH --job-name=lightloom
#SBATCH --array=0-9
#SBATCH --cpus-per-task=2
#SBATCH --time=00:30:00
set -euo pipefail
scenario=${1:-topologies/scenarios/any-node.yaml}
seeds=${2:-0..99}
shard="$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
lightloom emulate "$scenario" --seed "$seeds" --shard "$shard" \
  --threads "${SLURM_CPUS_PER_TASK:-1}" --format json > "part-$SLURM_ARRAY_TASK_ID.json"
