import sys, os, re, subprocess
M = ",".join(["gpu__time_duration.sum","dram__bytes_read.sum","dram__bytes_write.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed",
 "lts__t_sectors.sum","lts__t_requests.sum","lts__throughput.avg.pct_of_peak_sustained_elapsed","l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
 "lts__t_sector_hit_rate.pct","smsp__issue_active.avg.pct_of_peak_sustained_active","smsp__inst_executed.sum","l1tex__data_bank_conflicts_pipe_lsu.sum","l1tex__lsuin_requests.avg.pct_of_peak_sustained_elapsed","lts__t_tag_requests.sum","lts__lts2xbar_cycles_active.avg.pct_of_peak_sustained_elapsed","lts__d_sectors_fill_device.sum","l1tex__m_xbar2l1tex_read_sectors.sum",
 *("smsp__average_warps_issue_stalled_%s_per_issue_active.ratio" % s for s in ("long_scoreboard","barrier","lg_throttle","mio_throttle","short_scoreboard","wait","math_pipe_throttle","membar","no_instruction","drain","sleeping","not_selected","dispatch_stall"))])
env = dict(os.environ, NCU="1", T="1e6", CHUNKS="32")
r = subprocess.run(["ncu","--clock-control","none","-k","filter_chunks","--metrics",M,"python3",os.path.dirname(os.path.abspath(__file__))+"/probe1.py",*sys.argv[1:]],env=env,capture_output=True,text=True)
out = r.stdout
open(os.environ.get("OUT",".")+"/ncu.txt","w").write(out + r.stderr)
rows = {}; order=[]
k=-1
for line in out.splitlines():
    if re.match(r"\s+filter_chunks", line): k+=1
    m = re.match(r"\s+(\S+__\S+)\s+(\S*)\s+([\d.,]+)\s*$", line)
    if m: rows.setdefault(m.group(1)+" "+m.group(2), {})[k]=m.group(3)
for n, v in rows.items():
    if any(float(x.replace(",",""))>0 for x in v.values()): print(n.replace("smsp__average_warps_issue_stalled_","stall ")[:62].ljust(64), *[v.get(i,"").rjust(15) for i in range(k+1)])
if k<0: print(out[-1500:], r.stderr[-800:])
