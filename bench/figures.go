package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Figure is one measured number.
type Figure struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Reference string  `json:"reference"` // the goal, and measurements of other products
}

// Result is an object of bench/results.json.
type Result struct {
	Figure
	// Kept means that an earlier run measured the value. The run that wrote the file did
	// not measure it.
	Kept bool `json:"kept,omitempty"`
}

// known returns all figures in the order of the report.
// docs/contributing/benchmarks.md describes how bench measures each figure.
func known() []Figure {
	return []Figure{
		{"claim_ms_p50", 0, "ms", "goal ≤ 2.5; Tharsis 28, Nuon about 8000"},
		{"claim_ms_p95", 0, "ms", "goal ≤ 6; Tharsis 66"},
		{"claim_server_ms_p50", 0, "ms", "from created to claimed by the server's clock"},
		{"claim_server_ms_p95", 0, "ms", "from created to claimed by the server's clock"},
		{"create_ms_p50", 0, "ms", "the creating request alone, from sending to answer"},
		{"check_ms_p50", 0, "ms", "a check job through an idle runner, from created to finished"},
		{"check_launch_ms_p50", 0, "ms", "the part from claimed to started: the start of the step's process"},
		{"deploy_ms", 0, "ms", "median; Tharsis p95 10900"},
		{"deploy_bare_ms", 0, "ms", "median of init, plan and apply of the same module with the same tool"},
		{"deploy_ratio", 0, "ratio", "goal ≤ 1.5; Tharsis 9.1"},
		{"deploy_tool_ms", 0, "ms", "the tool's own time within deploy_ms"},
		{"deploy_added_ms", 0, "ms", "goal ≤ 60: deploy_ms without deploy_tool_ms"},
		{"deploy_steps_cpu_ms", 0, "ms", "CPU time of the two steps and their tools in such a deployment"},
		{"deploy_bare_cpu_ms", 0, "ms", "CPU time of the bare init, plan and apply"},
		{"deploy_part_cli_ms", 0, "ms", "of the added: the CLI's start to the deployment's creation"},
		{"deploy_part_claim_ms", 0, "ms", "of the added: two jobs from created to claimed"},
		{"deploy_part_launch_ms", 0, "ms", "of the added: two steps from claimed to started"},
		{"deploy_part_prepare_ms", 0, "ms", "of the added: two steps from started to the start of the tool"},
		{"deploy_part_between_ms", 0, "ms", "of the added: from the end of plan to the start of show"},
		{"deploy_part_report_ms", 0, "ms", "of the added: two steps from the tool's end to finished"},
		{"deploy_part_end_ms", 0, "ms", "of the added: from the last job's end to the CLI's end"},
		{"queue20_s", 0, "s", "median; Tharsis 40 (29.8 a minute)"},
		{"queue20_bare_s", 0, "s", "median of 20 bare runs, two at a time"},
		{"queue20_ratio", 0, "ratio", "goal: bound by the tool's CPU, so about 1"},
		{"graph30_ratio", 0, "ratio", "goal ≤ 1.11: 30 scripts of 2 s, 8 at a time, by the longest chain of 8 s"},
		{"unchanged30_ms", 0, "ms", "goal ≤ 300: a deployment of 30 components without a change, which has no jobs"},
		{"refresh_ms", 0, "ms", "median; a deployment that plans an unchanged module of the provider hashicorp/aws again, through the CLI"},
		{"refresh_bare_ms", 0, "ms", "median of init and plan of the same module with the same tool, on the same state"},
		{"refresh_ratio", 0, "ratio", "goal ≤ 1.05"},
		{"fifty_s", 0, "s", "50 deployments of ten scripts each at once, until the last has ended"},
		{"fifty_median_ratio", 0, "ratio", "goal ≤ 0.75: the median of their ends by the last"},
		{"fifty_small_s", 0, "s", "a deployment of one script that is requested after them"},
		{"helm_ms", 0, "ms", "median; a chart of ten objects to a new install, through the CLI"},
		{"helm_bare_ms", 0, "ms", "median of `helm upgrade --install` of the same chart, first with --dry-run=server and then without"},
		{"helm_alone_ms", 0, "ms", "median of the second of the two alone"},
		{"helm_limit_ratio", 0, "ratio", "goal ≤ 1: helm_ms by 1.2 × helm_bare_ms, or by helm_bare_ms + 150 ms if that is more"},
		{"manifest_ms", 0, "ms", "median; ten objects to a new install, through the CLI"},
		{"manifest_bare_ms", 0, "ms", "median of `kubectl apply --server-side` of the same objects, first with --dry-run=server and then without"},
		{"manifest_alone_ms", 0, "ms", "median of the second of the two alone"},
		{"manifest_limit_ratio", 0, "ratio", "goal ≤ 1: manifest_ms by 1.2 × manifest_bare_ms, or by manifest_bare_ms + 150 ms if that is more"},
		{"kubernetes_approvals", 0, "approvals", "goal ≤ 3: that a person gives for a first deployment of examples/kubernetes"},
		{"image_s", 0, "s", "median; an image of 1 GiB to a new install, through the CLI"},
		{"image_bare_s", 0, "s", "median of `regctl image copy` of the same image between the same registries"},
		{"image_ratio", 0, "ratio", "goal ≤ 1.1"},
		{"image_rss_mib", 0, "MiB", "goal ≤ 64: the largest memory of the program that copies, meanwhile"},
		{"log_ms_p50", 0, "ms", "goal ≤ 300; Tharsis 1500"},
		{"log_ms_p95", 0, "ms", "goal ≤ 1000; Tharsis 2900"},
		{"agent_rss_mib", 0, "MiB", "goal ≤ 30; Tharsis 58"},
		{"clusters_agent_rss_mib", 0, "MiB", "of the agent of the runner's image, which has every executor; goal ≤ 30"},
		{"agent_idle_cpu_percent", 0, "%", "of one core"},
		{"server_rss_mib", 0, "MiB", "no goal"},
		{"server_idle_cpu_percent", 0, "%", "of one core"},
		{"noop_jobs_per_s", 0, "1/s", "goal ≥ 140; Tharsis 1 claim a second for each runner"},
		{"noop_concurrency", 0, "steps", "the agent's concurrency at which noop_jobs_per_s was measured"},
		{"noop_server_cpu_ms", 0, "ms", "goal ≤ 4.5: CPU time of the server for each job, at that concurrency"},
		{"noop_agent_cpu_ms", 0, "ms", "goal ≤ 2: CPU time of the agent for each job"},
		{"noop_step_cpu_ms", 0, "ms", "goal ≤ 8: CPU time of the step's process for each job"},
		{"step_start_cpu_ms", 0, "ms", "goal ≤ 4: CPU time of one start of bin/fairlead-step"},
		{"step_full_start_cpu_ms", 0, "ms", "CPU time of one start of bin/fairlead-runner, which runs the steps that need a client of a cloud"},
		{"control_jobs_per_s", 0, "1/s", "goal ≥ 1000; over loopback HTTP, callers on the same cores"},
		{"control_server_cpu_ms", 0, "ms", "goal ≤ 1.4: CPU time of the server for each of these jobs"},
		{"control_caller_cpu_ms", 0, "ms", "CPU time of the callers for each of these jobs, including our client"},
		{"control_usecases_jobs_per_s", 0, "1/s", "the same without HTTP, within one process"},
		{"control_usecases_cpu_ms", 0, "ms", "CPU time for each of these jobs"},
		{"recovery_ms_p50", 0, "ms", "goal ≤ 2000: from the server's start after kill -9, 10,000 jobs queued, to the first claim"},
		{"recovery_ms_max", 0, "ms", "the slowest of five"},
		{"expire_last_s", 0, "s", "goal ≤ 60: from the server's restart, 10,000 jobs running and all runners gone, until the last job is lost"},
		{"expire_claim_ms_p50", 0, "ms", "meanwhile, a job of another runner from requested to claimed"},
		{"expire_claim_ms_p95", 0, "ms", "meanwhile, a job of another runner from requested to claimed"},
		{"dead_step_s_p50", 0, "s", "goal ≤ 2: from kill -9 of a step in an apply until its job is shown as lost"},
		{"dead_step_s_max", 0, "s", "the slowest of ten"},
		{"dead_host_s", 0, "s", "goal ≤ 60: from kill -9 of an agent, its steps and tools until the last of four jobs is lost; Nuon 15–75, HCP 7200, Tharsis never"},
		{"compete_claim_ms_p50", 0, "ms", "goal ≤ 3: as claim_ms, with 50 agents of one runner waiting for the job"},
		{"compete_claim_ms_p95", 0, "ms", "goal ≤ 15"},
		{"compete_jobs_per_s", 0, "1/s", "10,000 jobs through these agents, over loopback HTTP"},
		{"compete_repeated_jobs", 0, "jobs", "goal 0: jobs of the 10,000 that were claimed more than once"},
		{"flood_claim_ms_p99", 0, "ms", "as claim_ms, while another org sends requests as fast as it can over 40 connections"},
		{"flood_added_ms_p99", 0, "ms", "goal ≤ 100: what the flood adds to the 99th percentile"},
		{"flood_requests_per_s", 0, "1/s", "requests of the flood that are answered meanwhile; the others are refused"},
		{"crowd_server_rss_mib", 0, "MiB", "goal ≤ 150: of a server with 1,000 runners, each with an idle agent"},
		{"crowd_server_cpu_percent", 0, "%", "of one core, meanwhile"},
		{"crowd_agents_cpu_percent", 0, "%", "of one core, by all 1,000 agents together"},
		{"placement_ms_p50", 0, "ms", "goal ≤ 1: select one of 1,000 runners for an install by 10,000 rules"},
		{"placement_ms_p95", 0, "ms", "goal ≤ 1"},
		{"placement_read_ms_p50", 0, "ms", "the same, with reading all of them from the table and an explanation; no goal"},
		{"write_units_per_job", 0, "units", "goal ≤ 20 DynamoDB write units"},
		{"write_units_per_job_shop", 0, "units", "the same in a deployment of four components"},
		{"write_units_per_renewal", 0, "units", "each 15 s of a running job"},
		{"write_units_per_heartbeat", 0, "units", "each 15 s of an idle runner"},
		{"aws_idle_install_dollars", 0, "$/month", "goal ≤ 0.07: of one of 10,000 idle installs, on the vendor's side, with all line items"},
		{"aws_job_dollars", 0, "$", "a job of two minutes, on the vendor's side, without its log"},
		{"aws_jobs_dollars", 0, "$/month", "goal ≤ 0.15: 200 jobs of two minutes with a log of 1 MB each, on top of it"},
		{"sqlite_commit_ms_p50", 0, "ms", "one row, durable: the lower limit of all times here"},
		{"sqlite_commit_ms_p95", 0, "ms", "one row, durable"},
		{"fairlead_mib", 0, "MiB", "bin/fairlead"},
		{"runner_mib", 0, "MiB", "bin/fairlead-runner; goal ≤ 40 MB"},
		{"cpus", 0, "cores", "the goals are for two"},
		{"load_average", 0, "processes", "of one minute, before the first measurement"},
		{"other_cpu_percent", 0, "%", "of all cores, used by other processes during the measurements"},
	}
}

// report contains the values of the measured figures, by name.
type report struct{ values map[string]float64 }

// set records the rounded value of a figure. It panics if the name is unknown.
func (r *report) set(name string, value float64) {
	for _, f := range known() {
		if f.Name == name {
			r.values[name] = rounded(value)
			return
		}
	}
	panic("bench: no figure has the name " + name)
}

// rounded rounds v to three significant digits, but keeps all digits before the point.
func rounded(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	scale := math.Pow(10, float64(digits))
	return math.Round(v*scale) / scale
}

// missing returns the names that have no recorded value.
func (r *report) missing(names []string) (missing []string) {
	for _, name := range names {
		if _, ok := r.values[name]; !ok {
			missing = append(missing, name)
		}
	}
	return missing
}

// discard removes the recorded values of the names.
func (r *report) discard(names []string) {
	for _, name := range names {
		delete(r.values, name)
	}
}

// figures returns the measured figures, in the order of known, and the names of the
// missing figures.
func (r *report) figures() (measured []Result, missing []string) {
	for _, f := range known() {
		v, ok := r.values[f.Name]
		if !ok {
			missing = append(missing, f.Name)
			continue
		}
		f.Value = v
		measured = append(measured, Result{Figure: f})
	}
	return measured, missing
}

// withOlder returns the measured results in the order of known. For figures that were
// not measured it adds the older values, marked as kept. It omits figures that are in
// neither list.
func withOlder(measured, older []Result) (all []Result) {
	for _, f := range known() {
		same := func(r Result) bool { return r.Name == f.Name }
		if i := slices.IndexFunc(measured, same); i >= 0 {
			all = append(all, measured[i])
		} else if i := slices.IndexFunc(older, same); i >= 0 {
			f.Value = older[i].Value
			all = append(all, Result{Figure: f, Kept: true})
		}
	}
	return all
}

func writeTable(w io.Writer, results []Result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FIGURE\tVALUE\tUNIT\tREFERENCE")
	for _, r := range results {
		kept := ""
		if r.Kept {
			kept = "(kept, not measured) "
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s%s\n", r.Name, strconv.FormatFloat(r.Value, 'f', -1, 64), r.Unit, kept, r.Reference)
	}
	return tw.Flush()
}

// readResults returns the results in the file, or none if the file does not exist.
func readResults(path string) ([]Result, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var results []Result
	if err := json.Unmarshal(text, &results); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return results, nil
}

// writeResults replaces the file atomically.
func writeResults(path string, results []Result) error {
	out := []byte("[\n")
	for i, r := range results {
		b, err := json.Marshal(r) // one line for each result, so that a diff shows only the changed results
		if err != nil {
			return err
		}
		out = append(append(out, "  "...), b...)
		if i < len(results)-1 {
			out = append(out, ',')
		}
		out = append(out, '\n')
	}
	out = append(out, "]\n"...)
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(tmp, out, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// goal is the largest or the least value that a figure may have.
type goal struct {
	most  bool
	value float64
}

func (g goal) met(v float64) bool { return g.most && v <= g.value || !g.most && v >= g.value }

var goalOf = regexp.MustCompile(`^goal ([≤≥]) ([0-9.]+)`)

// goal returns the goal in the figure's reference, or false if it has none.
func (f Figure) goal() (goal, bool, error) {
	m := goalOf.FindStringSubmatch(f.Reference)
	if m == nil {
		return goal{}, false, nil
	}
	value, err := strconv.ParseFloat(m[2], 64)
	return goal{most: m[1] == "≤", value: value}, true, err
}

// missed are figures that do not reach their goals, and the values that they may have nevertheless. A figure that reaches its goal
// must leave the list. docs/vendor/cost-and-scale.md says why.
var missed = map[string]float64{}

// checkGoals returns an error for each of the figures that does not meet its goal.
func (r *report) checkGoals(names ...string) error {
	var errs []error
	for _, f := range known() {
		v, measured := r.values[f.Name]
		if !slices.Contains(names, f.Name) || !measured {
			continue
		}
		errs = append(errs, checkGoal(f, v))
	}
	return errors.Join(errs...)
}

func checkGoal(f Figure, v float64) error {
	g, ok, err := f.goal()
	limit, accepted := missed[f.Name]
	switch {
	case err != nil || !ok:
		return fmt.Errorf("%s has no goal: %w", f.Name, err)
	case g.met(v) && accepted:
		return fmt.Errorf("%s is %v %s and meets its goal %v: remove it from the figures that miss theirs", f.Name, v, f.Unit, g.value)
	case g.met(v):
		return nil
	case accepted && (goal{g.most, limit}).met(v):
		return nil
	case accepted:
		return fmt.Errorf("%s is %v %s, and misses its goal %v by more than is known (%v)", f.Name, v, f.Unit, g.value, limit)
	}
	return fmt.Errorf("%s is %v %s, and misses its goal %v", f.Name, v, f.Unit, g.value)
}
