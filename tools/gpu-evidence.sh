#!/usr/bin/env bash
# Runs the agent's --once on a machine with NVIDIA GPUs, compares its report with
# nvidia-smi and measures time and memory. It only reads: no setting is changed.
#
# Usage: tools/gpu-evidence.sh [OUTPUT-DIRECTORY]     (default: docs/evidence)
#        AGENT=path/to/agent skips the build, which needs Go and a C compiler.
#        With neither Go nor AGENT there is nothing to run. RUNS=n measures n runs (20).
#
# Needs bash, python3 and nvidia-smi. Exit code 0: report and nvidia-smi agree.
set -euo pipefail

cd "$(dirname "$0")/.."
out=${1:-docs/evidence}
runs=${RUNS:-20}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not in PATH: this is no machine with NVIDIA GPUs" >&2; exit 2; }
agent=${AGENT:-}
if [ -z "$agent" ]; then
	agent=$work/agent
	CGO_ENABLED=1 CGO_CFLAGS="-O1 -w" go build -trimpath -ldflags="-s -w" -o "$agent" ./cmd/agent
fi

# 1. What the agent says, and its exit code. A warning is no failure here.
code=0
"$agent" --once -o json >"$work/report.json" || code=$?
"$agent" --once -o table >"$work/report.txt" || true

# 2. What nvidia-smi says.
nvidia-smi --query-gpu=index,uuid,name,memory.total,compute_cap,driver_version,mig.mode.current,persistence_mode,pcie.link.width.current,pcie.link.width.max \
	--format=csv,noheader,nounits >"$work/smi.csv"
nvidia-smi -L >"$work/smi-list.txt"

# 3. Compare, and measure wall time and peak memory of whole runs of the process.
agree=0
python3 - "$work" "$agent" "$code" "$runs" >"$work/result.json" <<'PY' || agree=$?
import csv, json, os, re, subprocess, sys, time

work, agent, code, runs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
report = json.load(open(os.path.join(work, "report.json")))
rows = [[c.strip() for c in row] for row in csv.reader(open(os.path.join(work, "smi.csv")))]
instances = {}
gpu = None
for line in open(os.path.join(work, "smi-list.txt")):
    if m := re.match(r"GPU (\d+):", line):
        gpu = int(m[1])
    elif m := re.match(r"\s+MIG (?:\d+c\.)?(\S+)\s", line):
        instances.setdefault(gpu, []).append(m[1])

diffs = []
def same(what, got, want):
    if got != want:
        diffs.append(f"{what}: the agent says {got!r}, nvidia-smi says {want!r}")

gpus = report.get("gpus", [])
same("number of GPUs", len(gpus), len(rows))
for g, row in zip(gpus, rows):
    index, uuid, name, memory, cc, driver, mig = row[:7]
    at = f"GPU {index} "
    same(at + "index", g["i"], int(index))
    same(at + "uuid", g.get("uuid"), uuid)
    same(at + "product", g.get("product"), name)
    same(at + "compute capability", g.get("cc"), cc)
    same(at + "MIG mode", g.get("mig", False), mig == "Enabled")
    same(at + "MIG profiles", sorted(p.split("@")[0] for p in g.get("parts", [])), sorted(instances.get(int(index), [])))
    same("driver", report.get("driver"), driver)
    # Both round the same figure to MiB, in their own ways.
    if abs(g.get("mib", 0) - int(float(memory))) > 1:
        same(at + "memory in MiB", g.get("mib"), int(float(memory)))

times, peaks = [], []
for _ in range(runs):
    began = time.monotonic()
    child = subprocess.Popen([agent, "--once", "-o", "json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    times.append(time.monotonic() - began)
    peaks.append(usage.ru_maxrss)
times.sort()
json.dump({
    "agentExitCode": code, "state": report["state"], "reason": report["reason"], "differences": diffs,
    "gpus": [r[2] for r in rows], "driver": report.get("driver"), "cuda": report.get("cuda"),
    "runs": runs, "seconds": {"min": round(times[0], 3), "median": round(times[len(times) // 2], 3), "max": round(times[-1], 3)},
    "peakResidentMiB": round(max(peaks) / 1024, 1),
}, sys.stdout, indent=2)
print()
sys.exit(1 if diffs else 0)
PY

stamp=$(date -u +%Y%m%dT%H%M%SZ)
# UUIDs and boot IDs name a machine that others use: they stay out of the evidence.
{
	echo "# Agent on a real GPU, $stamp"
	echo; echo '## Result'; echo; echo '```json'; cat "$work/result.json"; echo '```'
	echo; echo '## Report'; echo; echo '```'; sed -E 's/(GPU|MIG)-[0-9a-f-]{36}/\1-…/g; s/^(BOOT +).*/\1…/' "$work/report.txt"; echo '```'
	echo; echo '## nvidia-smi'; echo; echo '```'; sed -E 's/(GPU|MIG)-[0-9a-f-]{36}/\1-…/g' "$work/smi.csv"; echo '```'
} >"$out/agent-$stamp.md"
echo "wrote $out/agent-$stamp.md" >&2
cat "$work/result.json"
exit "$agree"
