package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/job"
)

// speaker says who tells the control plane of an event.
func speaker(k job.Kind) string {
	switch k {
	case job.Claim, job.Release, job.Die:
		return "agent"
	case job.Start, job.Renew, job.Succeed, job.Fail, job.Stopped:
		return "step"
	case job.Cancel:
		return "person, deployment"
	case job.TimeOut:
		return "sweep, control" // when it waited or ran too long; when its step renews and says that the tool is silent
	case job.Expire:
		return "sweep"
	}
	return ""
}

// crash says what is left when every process dies while a job is in a state,
// and who goes on from there.
func crash(s job.State) string {
	switch s {
	case job.Queued:
		return "The job waits. The sweep sends its wake-up again after " + span(job.ResendAfter) + "."
	case job.Claimed:
		return "No tool has run. The start deadline passes, and the sweep queues the job again; a step that starts after that is refused by its epoch."
	case job.Running:
		return "The tool may still be at work on the customer's machine, and may have changed something. The lease runs out. A read is repeated in a new workspace; an apply or destroy is lost, and a plan finds out what it left."
	case job.Canceling:
		return "As running, but nothing is repeated: a read is canceled, or failed when its time was over; an apply or destroy is lost."
	case job.Succeeded, job.Failed, job.Canceled, job.Lost:
		return "Nothing: the state, the event and what follows from it are in one commit."
	}
	return ""
}

func writeJobs(b *bytes.Buffer, root string) error {
	states, err := constants(filepath.Join(root, "pkg", "job", "job.go"), "State")
	if err != nil {
		return err
	}
	kinds, err := constants(filepath.Join(root, "pkg", "job", "transitions.go"), "Kind")
	if err != nil {
		return err
	}
	if len(states) != len(job.States()) || len(kinds) != len(job.Kinds()) {
		return fmt.Errorf("job.States or job.Kinds does not list every constant: %d of %d, %d of %d",
			len(job.States()), len(states), len(job.Kinds()), len(kinds))
	}

	b.WriteString("## Jobs\n\nA job is one operation on one component, run by one runner. `job.Apply` takes a job and an event\n" +
		"and returns the job after it; only package `control` calls it, and commits what it returns on the\n" +
		"condition that the job is still the one it read.\n\n")
	d := newDiagram()
	d.edge("[*]", string(job.Queued), "")
	for _, tr := range job.Transitions() {
		if tr.From != tr.To {
			label := string(tr.On)
			if tr.If != job.Always {
				label += " if " + string(tr.If)
			}
			d.edge(string(tr.From), string(tr.To), label)
		}
	}
	for _, s := range job.States() {
		if s.Final() {
			d.edge(string(s), "[*]", "")
		}
	}
	d.write(b)

	b.WriteString("\n### Who enters a state, who moves it on, and what a crash leaves\n\n" +
		"| State | Entered by | Moved on by | What a crash leaves behind |\n|---|---|---|---|\n")
	for _, s := range job.States() {
		var in, out []string
		for _, tr := range job.Transitions() {
			if tr.From != tr.To && tr.To == s {
				in = append(in, speaker(tr.On)+": "+string(tr.On))
			}
			if tr.From != tr.To && tr.From == s {
				out = append(out, speaker(tr.On)+": "+string(tr.On))
			}
		}
		if s == job.Queued {
			in = append([]string{"control: made"}, in...)
		}
		left := crash(s)
		if left == "" {
			return fmt.Errorf("nobody has said what a crash of a %s job leaves", s)
		}
		name := "`" + string(s) + "`"
		if s.Final() {
			out, name = []string{"nobody: it is final"}, "**"+name+"**"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, list(in), list(out), left)
	}

	b.WriteString("\n### What the states mean\n\n")
	for _, s := range states {
		fmt.Fprintf(b, "- `%s`: %s\n", s.Value, s.Comment)
	}

	b.WriteString("\n### Events\n\n| Event | Told by | Carries the epoch | Meaning |\n|---|---|---|---|\n")
	for _, k := range kinds {
		who, leased := speaker(job.Kind(k.Value)), "no"
		if who == "" {
			return fmt.Errorf("nobody has said who tells of %s", k.Value)
		}
		if job.Kind(k.Value).Leased() {
			leased = "yes"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", k.Value, who, leased, k.Comment)
	}

	b.WriteString("\n### Transitions\n\nThe first row of a state and an event whose condition holds is taken. What is not here is refused.\n\n" +
		"| From | Event | If | To | Effect |\n|---|---|---|---|---|\n")
	for _, tr := range job.Transitions() {
		fmt.Fprintf(b, "| `%s` | `%s` | %s | `%s` | %s |\n", tr.From, tr.On, tr.If, tr.To, tr.Effect)
	}

	fmt.Fprintf(b, `
### What the table does not show

- An event that carries the epoch is refused as *stale* when the job's epoch is another, or when nobody holds the job.
  Each claim raises the epoch by one and nothing lowers it. Whoever hears that it is stale kills its tool.
- A repeated %[1]sstart%[1]s is answered again for the step that started, and refused as stale for any other.
- A %[1]sclaim%[1]s before the pause after a death is over, and an %[1]sexpire%[1]s before the lease is, are refused.
- A step has %[2]s to start after the claim, and renews its lease of %[3]s every %[4]s. Where a runner grants it more time to
  start, because images are pulled first, the job is its agent's for that time as long as the agent is heard of every %[3]s.
- A job that may be repeated gets %[5]d attempts, with pauses of %[6]s and %[7]s between them. A claim that is given
  back is no attempt. An apply or destroy whose tool may have begun never gets a second one.
- The step ends a plan after %[8]s, an apply or destroy after %[9]s and a check after %[10]s; should it not, the sweep
  cancels the job %[11]s later. A canceling job's lease is not extended beyond %[12]s after it was asked to stop, so a
  step that renews for ever loses it.
- A job that no runner has taken %[13]s after it was made has failed (%[1]squeue-timeout%[1]s). One that was taken and did not
  start in time, in each of its attempts, has failed with %[1]sstart-timeout%[1]s; one that began in any of them, as poison.
- A step says with each renewal how long its tool has been silent. After %[14]s the control plane cancels the job
  (%[1]sno-output-timeout%[1]s). A check is silent by its nature.
`, "`", span(job.StartTTL), span(job.LeaseTTL), span((job.Terms{}).RenewEvery()), job.MaxAttempts, span(job.Backoff(1)), span(job.Backoff(2)),
		span(job.OpPlan.Timeout()), span(job.OpApply.Timeout()), span(job.OpCheck.Timeout()), span(job.Grace), span((job.Terms{}).StopTTL()),
		span(job.QueueTimeout), span(job.NoOutput))
	return nil
}

// span renders a whole number of seconds in the largest unit that fits.
func span(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// list joins what is said several times once, in the order it was first said.
func list(ss []string) string {
	var once []string
	for _, s := range ss {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return strings.Join(once, "; ")
}
