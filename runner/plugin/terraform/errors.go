package terraform

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/workspace"
)

// result holds what can be said of a run that failed.
func (j *job) result(err error) plugin.Result {
	if te, ok := errors.AsType[*toolError](err); ok {
		// The tool has no other sign of it than the system's own text.
		full := workspace.DiskFull(err) || strings.Contains(unwrapped(te.stderr), syscall.ENOSPC.Error())
		return plugin.Result{ExitCode: te.code, DiskFull: full}
	}
	return plugin.Result{}
}

// unwrapped is what the tool says without its line breaks, which it sets anywhere
// between two words.
func unwrapped(stderr string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(stderr, "│", " ")), " ")
}

// marks tell errors of the tools apart by their titles, which both tools share
// and have kept since they parted. A title that changes makes a reason less
// exact, nothing else.
var marks = []struct {
	text   string
	reason fairlead.Reason
	next   string
}{
	{"Saved plan is stale", fairlead.ReasonPlanStale, "The state has changed since the plan was made: plan again."},
	{"Error acquiring the state lock", fairlead.ReasonStateLocked, "Wait until whoever holds the lock is done, then try again."},
	{"Error locking state", fairlead.ReasonStateLocked, "Wait until whoever holds the lock is done, then try again."},
	{"Error initializing", fairlead.ReasonInitFailed, ""},
}

// failed gives a failure of the tool its typed reason; otherwise is that of a
// failure nobody knows more about. An error that is no failure of the tool is
// returned as it is.
func (j *job) failed(err error, otherwise fairlead.Reason) error {
	te, ok := errors.AsType[*toolError](err)
	if !ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &plugin.Error{Reason: fairlead.ReasonToolKilled, Err: err, Message: te.interrupted()}
	}
	if te.signal != "" {
		return &plugin.Error{Reason: fairlead.ReasonToolKilled, Err: err,
			Message: fmt.Sprintf("something ended the tool with a signal (%s) during %s; perhaps the machine's memory ran out", te.signal, te.command)}
	}
	if te.code == nil {
		if errors.Is(te.err, exec.ErrNotFound) || !te.started {
			return &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
				Message: fmt.Sprintf("%s could not be started on this runner: %v", j.tool.path, te.err)}
		}
		return &plugin.Error{Reason: otherwise, Err: err, Message: j.env.Mask(fmt.Sprintf("%s: %v", te.command, te.err))}
	}
	text, title := diagnostic(te.stderr), firstTitle(te.stderr)
	if te.first != nil {
		text, title = te.first.String(), te.first.Summary
	}
	reason, next := otherwise, ""
	for _, m := range marks {
		if strings.Contains(title, m.text) {
			reason, next = m.reason, m.next
			if reason == fairlead.ReasonStateLocked {
				text, next = j.lockedBy(te.stderr), next+j.lockWayOut()
			}
			break
		}
	}
	if text == "" {
		text = fmt.Sprintf("the tool ended with %d", *te.code)
	}
	message := fmt.Sprintf("%s failed: %s.", te.command, strings.TrimRight(text, "."))
	if next != "" {
		message += " " + next
	}
	return &plugin.Error{Reason: reason, Err: err, Message: j.env.Mask(message)}
}

// interrupted says how the tool took the interrupt.
func (e *toolError) interrupted() string {
	switch {
	case !e.started:
		return e.command + " had not begun"
	case e.signal != "":
		return e.command + " did not stop in time and was killed"
	}
	return e.command + " was interrupted and stopped in order"
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// firstTitle returns the title of the first error that the tool reports, "" if
// there is none. Those that seem to follow may be words of whatever the first is
// about: the tool does not mark where its own end.
func firstTitle(stderr string) string {
	for line := range strings.Lines(stderr) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "│╷╵ "), "Error: "); ok {
			return strings.TrimSpace(title)
		}
	}
	return ""
}

// maxDiagnostic is how much of one diagnostic goes into a message, in bytes.
const maxDiagnostic = 600

// diagnosis is an error as a tool reports it to programs.
type diagnosis struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"` // its title
	Detail   string `json:"detail"`  // what explains it, such as the error_message of a module's author
}

// String returns the error on one line.
func (d *diagnosis) String() string {
	text := d.Summary
	if d.Detail != "" {
		text += ": " + d.Detail
	}
	return fairlead.Clip(strings.Join(strings.Fields(text), " "), maxDiagnostic)
}

// maxReport is how much of one line of a report is read, in bytes.
const maxReport = 1 << 20

// firstError reads the first error in the report of a tool; nil if there is none, or
// no report.
func firstError(path string) *diagnosis {
	f, err := safefile.Open(path) // a module's own programs can put anything in its place
	if err != nil {
		return nil
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxReport)
	for lines.Scan() {
		var event struct {
			Type       string    `json:"type"`
			Diagnostic diagnosis `json:"diagnostic"`
		}
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Type == "diagnostic" && event.Diagnostic.Severity == "error" {
			return &event.Diagnostic
		}
	}
	return nil
}

// diagnostic returns the first error that the tool prints, on one line: its
// title and what explains it, such as the error_message of a module's author. The
// paragraph between them, which quotes the module and its values, is for the log.
// It is for what is not reported to programs: where the author's words look
// like the beginning of another error, it ends there.
func diagnostic(stderr string) string {
	_, rest, ok := strings.Cut(stderr, "Error: ")
	if !ok {
		return ""
	}
	title, rest, _ := strings.Cut(rest, "\n")
	var detail []string
	quoted, begun := false, false
	for line := range strings.Lines(rest) {
		line = strings.TrimRight(strings.TrimPrefix(strings.TrimLeft(line, "│╷╵"), " "), " \r\n")
		text := strings.TrimSpace(line)
		if strings.HasPrefix(line, "Error: ") || strings.HasPrefix(line, "Warning: ") {
			break
		}
		switch {
		case text == "":
			quoted = false
		case !begun && location().MatchString(text): // all of its paragraph
			quoted, begun = true, true
		case quoted:
		default:
			begun = true
			detail = append(detail, text)
		}
	}
	text := strings.TrimSpace(title)
	if len(detail) > 0 {
		text += ": " + strings.Join(detail, " ")
	}
	return fairlead.Clip(text, maxDiagnostic)
}

// The patterns are made when a tool has failed: to make them takes longer than
// many a job.
var (
	location = lazily(`^(on .+ line \d+|with .+[,:])`)
	colours  = lazily(`\x1b\[[0-9;]*m`) // of the few commands that cannot be told to do without
	info     = lazily(`(?m)^[\s│]*(ID|Who|Operation|Created):[ \t]+(\S.*?)\s*$`)
)

func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// lockedBy says who holds the lock of the state, as far as the tool does.
func (j *job) lockedBy(stderr string) string {
	lock := map[string]string{}
	for _, m := range info().FindAllStringSubmatch(stderr, -1) {
		if lock[m[1]] == "" { // the first lock that is told
			lock[m[1]] = m[2]
		}
	}
	text := "the state is locked"
	if lock["Who"] != "" {
		text += " by " + lock["Who"]
	}
	if j.place().unlock == "" {
		return text // the control plane says the rest, or the process is on this machine
	}
	at, _, _ := strings.Cut(lock["Created"], ".")
	for _, part := range []struct{ before, what string }{{" since ", at}, {" for ", strings.TrimPrefix(lock["Operation"], "OperationType")}, {", lock ", lock["ID"]}} {
		if part.what != "" {
			text += part.before + part.what
		}
	}
	return text
}

// lockWayOut says what a person does about a lock that stays.
func (j *job) lockWayOut() string {
	b := j.place()
	if b.unlock == "" {
		return ""
	}
	return fmt.Sprintf(" If nobody is at work on %s any more, `%s` takes the lock off.", b.where, b.unlock)
}

// place is the backend with which the tool was at work.
func (j *job) place() backend {
	if j.elsewhere != nil {
		return j.elsewhere.backend()
	}
	return j.state.backend()
}
