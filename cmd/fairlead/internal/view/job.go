package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Jobs is a listing of jobs.
type Jobs []wire.Job

// JSON returns an array of wire.Job.
func (js Jobs) JSON() any { return array(js) }

// Human writes a table.
func (js Jobs) Human(p *Page) {
	table(p, []string{"ID", "OPERATION", "INSTALL", "COMPONENT", "STATE", "CREATED", "RAN"}, js, func(j wire.Job) []string {
		return []string{j.ID, j.Operation, orDash(j.Install), orDash(j.Component), j.State, Time(j.CreatedAt), cmp.Or(ran(j), "-")}
	})
}

func ran(j wire.Job) string {
	if j.StartedAt == nil || j.FinishedAt == nil {
		return ""
	}
	return Seconds(j.FinishedAt.Sub(*j.StartedAt))
}

// Job is one job.
type Job wire.Job

// JSON returns the wire.Job.
func (j Job) JSON() any { return wire.Job(j) }

// Human writes the job, its plan and its logs.
func (j Job) Human(p *Page) {
	exit := ""
	if j.ExitCode != nil {
		exit = fmt.Sprint(*j.ExitCode)
	}
	waited := ""
	if j.ClaimedAt != nil {
		waited = milliseconds(j.ClaimedAt.Sub(j.CreatedAt))
	}
	attempt := ""
	if j.Epoch > 1 {
		attempt = fmt.Sprint(j.Epoch)
	}
	p.Fields([2]string{"Job", j.ID}, [2]string{"Operation", j.Operation}, [2]string{"State", j.State},
		[2]string{"Install", j.Install}, [2]string{"Component", j.Component}, [2]string{"Deployment", j.Deployment},
		[2]string{"Runner", j.Runner}, [2]string{"Attempt", attempt}, [2]string{"Created", Time(j.CreatedAt)},
		[2]string{"Waited", waited}, [2]string{"Ran", ran(wire.Job(j))}, [2]string{"Exit code", exit},
		[2]string{"Reason", j.Reason}, [2]string{"Message", j.Message}, [2]string{"Canceled by", actor(j.CanceledBy)}, [2]string{"Kept state", kept(j.Salvaged)})
	if j.Plan != nil {
		p.Gap()
		Plan{Component: cmp.Or(j.Component, j.ID), Plan: *j.Plan}.Human(p)
	}
	if len(j.Log) > 0 {
		p.Gap()
		p.Line("%s", Styled(p.Style.Dim(fmt.Sprintf("%s of log: `fairlead job logs %s`", size(j.Log), Cell(j.ID)))))
	}
	situations(p, j.Situations)
}

// Starting returns how long the runner has been starting the step of a claimed job.
func Starting(j wire.Job, now time.Time) string {
	return fmt.Sprintf("starting on runner %s for %s; a runner that starts a container or a task for each job needs up to a minute", Cell(j.Runner), Seconds(now.Sub(*j.ClaimedAt)))
}

// kept returns the path of the runner's copy of a state that was not saved.
func kept(s *wire.Salvaged) string {
	switch {
	case s == nil:
		return ""
	case s.Whole:
		return s.Path
	}
	return s.Path + " (incomplete)"
}

func size(streams []wire.LogStreamInfo) string {
	var total int64
	for _, s := range streams {
		total += s.Size
	}
	if total < 10<<10 {
		return fmt.Sprintf("%d bytes", total)
	}
	return fmt.Sprintf("%d KiB", total>>10)
}

func milliseconds(d time.Duration) string {
	if d >= time.Minute {
		return Seconds(d)
	}
	return fmt.Sprintf("%d ms", max(d.Milliseconds(), 0))
}

// JobLog is the whole log of a job, attempt by attempt.
type JobLog []Attempt

// Attempt is the log of one attempt.
type Attempt struct {
	Epoch       int64  `json:"epoch"`
	Text        string `json:"text"`
	Truncated   bool   `json:"truncated,omitempty"`
	TruncatedBy string `json:"truncated_by,omitempty"` // wire.ByLogBudget, or ""
}

// JSON returns an array of {"epoch", "text", "truncated", "truncated_by"}.
func (l JobLog) JSON() any { return array(l) }

// Human writes the text.
func (l JobLog) Human(p *Page) {
	for _, a := range l {
		p.Line("%s", strings.TrimSuffix(a.Text, "\n"))
	}
}
