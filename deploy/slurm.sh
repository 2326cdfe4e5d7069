#!/bin/bash
# A run on several nodes under Slurm: a Ray cluster for the length of the job, and `ansatz train` on its first node.
#
#   sbatch --nodes 16 deploy/slurm.sh qwen32b_dapo17k_dapo_128x80gib 16x8x80gib
#   sbatch --nodes 1  deploy/slurm.sh qwen7b_orz_kimi_8x80gib        8x80gib
#
# The first argument is a recipe, the second an overlay; others go to `ansatz train`. Runs are written to $RUNS, which
# all nodes must see. 120 s before the time limit the run saves and ends with exit code 75, and the job is queued again;
# so it is when a node is lost. The same script then resumes the run.
#SBATCH --job-name=ansatz
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

recipe=${1:?name a recipe}
overlay=${2:?name an overlay}
shift 2
runs=${RUNS:-$SLURM_SUBMIT_DIR/runs}
name=${NAME:-$(basename "$recipe" .yaml)}
port=${PORT:-6379}
cpus=${SLURM_CPUS_PER_TASK:-64}
gpus=${SLURM_GPUS_ON_NODE:-8}
export RAY_process_group_cleanup_enabled=1 RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token
ray get-auth-token --generate >/dev/null # in the home folder, which all nodes see: Ray admits nobody without it

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}'):$port

# Each `ray start --block` ends with its step, so nothing is left when the job ends.
srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --node-ip-address="${address%:*}" --port="$port" --num-cpus="$cpus" --num-gpus="$gpus" \
    --disable-usage-stats --block &
for _ in {1..120}; do # until the head listens
    if (: <"/dev/tcp/${address%:*}/$port") 2>/dev/null; then break; fi
    sleep 1
done
sleep 10
if ((${#hosts[@]} > 1)); then
    others=$(IFS=,; echo "${hosts[*]:1}")
    srun --nodes=$((${#hosts[@]} - 1)) --ntasks=$((${#hosts[@]} - 1)) --nodelist="$others" \
        ray start --address="$address" --num-cpus="$cpus" --num-gpus="$gpus" --disable-usage-stats --block &
fi

on_head() { srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" "$@"; }

# Waits up to two minutes for all nodes, and says what is wrong with each of them.
on_head ansatz doctor --cluster --address "$address" --nodes "${#hosts[@]}" --folder "$runs"

if [[ -e $runs/$name/config.yaml ]]; then
    command=(ansatz train --resume "$runs/$name" --cluster.address "$address")
else
    command=(ansatz train "$recipe" --overlay "$overlay" --out "$runs" --name "$name" --cluster.address "$address" "$@")
fi
on_head "${command[@]}" &
driver=$!
trap 'kill -TERM "$driver"' TERM
code=0
wait "$driver" || code=$?
if kill -0 "$driver" 2>/dev/null; then # a signal has ended the first wait
    code=0
    wait "$driver" || code=$?
fi
if ((code == 75)); then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
